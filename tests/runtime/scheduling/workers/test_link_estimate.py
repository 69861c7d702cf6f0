"""The latency and the bandwidth of a link follow its transfers."""

import numpy as np
import pytest

from partita_runtime.scheduling.workers.link_estimate import LinkEstimate

DECLARED = 0.008
"""Microseconds for each byte at 1 Gbit/s."""
MEGABYTE = 1_000_000


def after(*transfers: tuple[int, int], declared: float = DECLARED) -> LinkEstimate:
    """The estimate after transfers (bytes, microseconds) that shared the network with none."""
    link = LinkEstimate(declared)
    for size, took in transfers:
        link.observe(size, took, took)
    return link


def test_right_declaration_is_not_corrected() -> None:
    link = LinkEstimate(DECLARED)

    assert not any(link.observe(size, 8 * size // 1000, 8 * size // 1000) for size in (1000, MEGABYTE) * 50)
    assert (link.latency_micros, link.micros_per_byte, link.spread) == (0, DECLARED, 0)


@pytest.mark.parametrize(
    ("ratio", "want"),
    [
        pytest.param(2, 2, id="half the bandwidth"),
        pytest.param(5, 5, id="a fifth"),
        pytest.param(1 / 5, 1 / 5, id="five times the bandwidth"),
        pytest.param(1 / 100, 1 / 16, id="bounded below"),
    ],
)
def test_bandwidth_follows_large_transfers_both_ways(ratio: float, want: float) -> None:
    link = after(*[(MEGABYTE, round(8000 * ratio))] * 60)

    assert link.micros_per_byte == pytest.approx(want * DECLARED, rel=0.02)


def test_bandwidth_is_bounded_above() -> None:
    assert after(*[(MEGABYTE, 800_000)] * 200).micros_per_byte == pytest.approx(16 * DECLARED)


def test_few_transfers_suffice() -> None:
    assert after(*[(MEGABYTE, 40_000)] * 12).micros(MEGABYTE) > 36_000


def test_latency_and_bandwidth_are_told_apart_by_transfers_of_different_sizes() -> None:
    sizes = np.random.default_rng(3).choice([2_000, 50_000, 400_000], size=600).tolist()
    link = after(*[(size, 3000 + round(2 * DECLARED * size)) for size in sizes])

    assert link.latency_micros == pytest.approx(3000, rel=0.05)
    assert link.micros_per_byte == pytest.approx(2 * DECLARED, rel=0.1)


def test_one_outlier_counts_for_at_most_twice_the_estimate() -> None:
    usual = [(MEGABYTE, 8000)] * 20

    assert after(*usual, (MEGABYTE, 3_000_000)).micros(MEGABYTE) <= 9000
    assert after(*usual, (MEGABYTE, 3_000_000), *usual).micros(MEGABYTE) == pytest.approx(8000, rel=0.02)


def test_transfer_that_shared_the_network_corrects_only_to_its_bounds() -> None:
    link = after(*[(MEGABYTE, 8000)] * 20)
    for _ in range(100):
        link.observe(MEGABYTE, 4000, 8000)
    assert link.micros(MEGABYTE) == 8000
    for _ in range(100):
        link.observe(MEGABYTE, 12_000, 40_000)
    assert 12_000 <= link.micros(MEGABYTE) <= 40_000


def test_doubt_leads_back_to_the_declaration_and_the_spread_shrinks_first() -> None:
    link = after(*[(MEGABYTE, 80_000)] * 5)
    estimated, spread = link.micros(MEGABYTE), link.spread
    link.doubt(spread_only=True)
    assert (link.micros(MEGABYTE), link.spread < spread) == (estimated, True)
    for _ in range(100):
        link.doubt()
    assert link.micros(MEGABYTE) == pytest.approx(8000, rel=0.02)


def test_network_without_a_declared_bandwidth_takes_no_time() -> None:
    link = after((MEGABYTE, 8000), declared=0.0)

    assert (link.micros(MEGABYTE), link.transfers) == (0, 0)
