"""The measurements of a demand that the exact packing may use."""

import time

import pytest

from partita_planner.mig.demand import MigDemand, pack, pack_by_paris
from partita_planner.mig.errors import BadDemandError
from partita_planner.mig.packing import Packing
from partita_planner.mig.products import known_products
from partita_planner.solver.deadline import Deadline

LATENCY_MS = {"1g.5gb": {1: 10.0, 8: 80.0}, "7g.40gb": {1: 4.0, 8: 16.0}}


def demand(gpus: int = 1, **model: object) -> MigDemand:
    slices = {
        name: {
            "throughput": {b: 1000 / ms for b, ms in by_batch.items()},
            "utilization": dict.fromkeys(by_batch, 0.9),
        }
        for name, by_batch in LATENCY_MS.items()
    }
    asked = {"name": "m", "batches": {1: 3, 8: 1}, "slices": slices} | model
    return MigDemand.model_validate({"product": "A100-40GB", "gpus": gpus, "models": [asked]})


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param({}, {1: {"1g.5gb", "7g.40gb"}, 8: {"1g.5gb", "7g.40gb"}}, id="no SLO: whatever is measured"),
        pytest.param({"sloMs": 110}, {1: {"1g.5gb", "7g.40gb"}, 8: {"1g.5gb", "7g.40gb"}}, id="80 ms of 110 ms"),
        pytest.param({"sloMs": 100}, {1: {"1g.5gb", "7g.40gb"}, 8: {"7g.40gb"}}, id="80 ms leave too little of 100"),
        pytest.param({"sloMs": 100, "executionShare": 0.09}, {1: {"7g.40gb"}, 8: set()}, id="more time for waiting"),
    ],
)
def test_slices_on_which_a_query_leaves_time_for_waiting(model: dict[str, object], want: dict[int, set[str]]) -> None:
    assert {w.batch: set(w.throughput) for w in demand(**model).workloads()} == want


def test_large_queries_get_large_slices_where_the_slo_asks_for_them() -> None:
    slices = {}
    for name, model in {"loose": {"sloMs": 1000}, "tight": {"sloMs": 100}}.items():
        found = pack(demand(gpus=2, **model), known_products(), Deadline.after(60, time.perf_counter))
        assert isinstance(found, Packing)
        slices[name] = found.slices
    assert slices == {"loose": {"1g.5gb": 14}, "tight": {"7g.40gb": 2}}


def test_a_query_that_no_slice_answers_in_time_is_said() -> None:
    with pytest.raises(BadDemandError, match=r"batch 8.*loosen its SLO"):
        pack(demand(sloMs=20), known_products(), Deadline.after(60, time.perf_counter))


def test_paris_does_not_look_at_the_slo() -> None:
    found = [
        pack_by_paris(demand(gpus=2, **m), known_products(), Deadline.after(60, time.perf_counter))
        for m in ({}, {"sloMs": 20})
    ]
    assert found[0] == found[1]
