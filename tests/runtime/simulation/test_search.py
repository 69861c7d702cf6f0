"""Goodput and load factor of services with a known capacity."""

import pytest

from partita_runtime.simulation.load_search import goodput, load_factor


def service(capacity: float):  # type: ignore[no-untyped-def]
    """Serves all requests up to its capacity; above it, only as many as the capacity."""
    return lambda rate: min(1.0, capacity / rate)


@pytest.mark.parametrize("capacity", [10.0, 333.0, 990.0])
def test_goodput_is_found(capacity: float) -> None:
    assert goodput(service(capacity), at_most=1000, target=0.99) == pytest.approx(capacity / 0.99, abs=5)


@pytest.mark.parametrize(
    ("capacity", "want_factor"),
    [
        pytest.param(1000, 1.0, id="all"),
        pytest.param(700, 0.7, id="part"),
        pytest.param(10, 0.0, id="nothing"),
    ],
)
def test_load_factor_is_found(capacity: float, want_factor: float) -> None:
    assert load_factor(service(capacity), throughput=1000) == pytest.approx(want_factor)


def test_search_needs_a_bound() -> None:
    with pytest.raises(ValueError, match="above 0"):
        goodput(service(1), at_most=0)
