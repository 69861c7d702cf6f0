"""The cheapest cover of one module's demand."""

import pytest
from tests.builders import pool

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.least_cost import bundle_search
from partita_planner.least_cost.bundle_search import Bundles, Cover, cheapest_cover
from partita_planner.templates.templates import Template, TemplateStage


def cover(needed: float, *units: tuple[float, str]) -> Cover:
    """A cover by templates of one stage; vGPUs as (samples per second, price)."""
    pools = {f"p{i}": pool(f"p{i}").price(price).for_planner() for i, (_, price) in enumerate(units)}
    templates = [Template(1, 0, (TemplateStage(0, 1, f"p{i}", 1, 1000, 0, rate),)) for i, (rate, _) in enumerate(units)]
    demand, resources = ModuleDemand("m", needed, needed, tuple(templates)), AvailableResources(pools)
    return cheapest_cover(demand, templates, Bundles.of(templates, demand, resources), resources)


@pytest.mark.parametrize(
    ("needed", "units", "want_price", "want_replicas"),
    [
        pytest.param(100, [(100, "1")], 1, {"p0": 1}, id="one unit to the brim"),
        pytest.param(101, [(100, "1")], 2, {"p0": 2}, id="one unit and a bit"),
        pytest.param(110, [(100, "3"), (10, "1")], 4, {"p0": 1, "p1": 1}, id="a small unit for the rest"),
        pytest.param(90, [(100, "5"), (30, "1")], 3, {"p1": 3}, id="small units only"),
        pytest.param(37, [(25, "2.5"), (12, "1.3"), (1, "1")], 3.8, {"p0": 1, "p1": 1}, id="37 = 25 + 12"),
        pytest.param(38, [(25, "2.5"), (12, "1.3"), (1, "1")], 4.8, {"p0": 1, "p1": 1, "p2": 1}, id="38 = 25 + 12 + 1"),
    ],
)
def test_cheapest(
    needed: float, units: list[tuple[float, str]], want_price: float, want_replicas: dict[str, int]
) -> None:
    found = cover(needed, *units)

    assert found.price == pytest.approx(want_price)
    assert found.bound == pytest.approx(want_price)
    assert {d.template.stages[0].pool: d.replicas[0] for d in found.deployments} == want_replicas


def test_given_up_search_says_what_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_search, "MAX_LABELS", 1)

    found = cover(110, (100, "3"), (10, "1"))

    assert found.price == 6
    assert found.bound <= 4


def test_deployments_are_in_the_order_of_dispatch() -> None:
    """Cheapest per sample first, in any order of the input."""
    found = cover(110, (10, "1"), (100, "3"))

    assert [d.template.stages[0].pool for d in found.deployments] == ["p1", "p0"]
