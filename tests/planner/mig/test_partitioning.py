"""The partitioning of spec.mig: configurations named after their content, within the placement table."""

from typing import Any

import pytest

from partita_api.pool.mig import MigPartitioning
from partita_planner.mig.errors import MigError
from partita_planner.mig.mig_parted import parse, render
from partita_planner.mig.partitioning import DesiredPartitioning, desired_partitioning
from partita_planner.mig.products import known_products


def asked(*layouts: dict[str, Any], pool: str = "vision", **fields: Any) -> DesiredPartitioning:
    spec = MigPartitioning.model_validate({"product": "H100-80GB", "gpusPerNode": 4, "layouts": layouts, **fields})
    return desired_partitioning(pool, spec, known_products())


def layout(nodes: int, *gpus: tuple[int, dict[str, int]]) -> dict[str, Any]:
    return {"nodes": nodes, "gpus": [{"count": count, "slices": slices} for count, slices in gpus]}


def test_a_configuration_says_of_each_gpu_how_it_is_cut() -> None:
    (found,) = asked(layout(2, (2, {"1g.10gb": 7}), (1, {"3g.40gb": 1, "4g.40gb": 1}))).configurations
    assert found.entries == [
        {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
        {"devices": [2], "mig-enabled": True, "mig-devices": {"3g.40gb": 1, "4g.40gb": 1}},
        {"devices": [3], "mig-enabled": False},
    ]
    assert found.resources == {
        "nvidia.com/mig-1g.10gb": 14,
        "nvidia.com/mig-3g.40gb": 1,
        "nvidia.com/mig-4g.40gb": 1,
    }
    assert parse(render({found.name: found.entries})) == {found.name: found.entries}


def test_names_follow_the_content() -> None:
    one = asked(layout(2, (4, {"1g.10gb": 7})))
    more = asked(layout(3, (4, {"1g.10gb": 7})))
    other = asked(layout(2, (4, {"2g.20gb": 3})))
    assert one.configurations[0].name == more.configurations[0].name
    assert one.change != more.change
    assert len({one.configurations[0].name, other.configurations[0].name}) == 2
    assert one == asked(layout(2, (4, {"1g.10gb": 7})))
    names = asked(layout(2, (4, {"1g.10gb": 7})), pool="p" * 250)
    assert max(len(names.change), len(names.configurations[0].name)) == 63


@pytest.mark.parametrize(
    ("layouts", "fields", "want_words"),
    [
        pytest.param([layout(1, (1, {"3g.40gb": 2, "1g.10gb": 1}))], {}, "do not fit on one H100-80GB", id="too much"),
        pytest.param([layout(1, (1, {"1g.5gb": 1}))], {}, "no MIG profile '1g.5gb'", id="unknown profile"),
        pytest.param([layout(1, (1, {"1g.10gb": 1}))], {"product": "T4"}, "'T4' is unknown", id="unknown product"),
        pytest.param([layout(1, (1, {"1g.10gb": 1}))] * 2, {}, "twice", id="one layout twice"),
        pytest.param([layout(1, (5, {"1g.10gb": 1}))], {}, "cuts more GPUs of a node", id="more GPUs than a node has"),
    ],
)
def test_what_cannot_be_cut_is_refused(layouts: list[dict[str, Any]], fields: dict[str, Any], want_words: str) -> None:
    with pytest.raises((MigError, ValueError), match=want_words):
        asked(*layouts, **fields)
