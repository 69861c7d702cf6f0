"""Invalid workloads are refused, and infeasible ones have no answer."""

from collections.abc import Callable
from math import inf, nan

import pytest
from tests.planner.configurations.workloads import HARPAGON_M3, chain

from partita_planner.configurations.whole_machines import least_allocated
from partita_planner.configurations.workload import Configuration, InvalidWorkloadError, Workload, WorkloadModule
from partita_planner.strategies import STRATEGIES

MODULE = WorkloadModule("m", 10, HARPAGON_M3)
OTHER = WorkloadModule("n", 10, HARPAGON_M3)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda: WorkloadModule("m", 10, ()), "no configuration", id="no configurations"),
        pytest.param(lambda: WorkloadModule("m", 0, HARPAGON_M3), "rate of 0", id="rate 0"),
        pytest.param(lambda: WorkloadModule("m", nan, HARPAGON_M3), "rate of nan", id="rate NaN"),
        pytest.param(lambda: Configuration(1, nan, "gpu", 1.0), "duration", id="duration NaN"),
        pytest.param(lambda: Configuration(1, 0.0, "gpu", 1.0), "duration", id="duration 0"),
        pytest.param(lambda: Configuration(0, 0.1, "gpu", 1.0), "batch", id="batch 0"),
        pytest.param(lambda: Configuration(1, 0.1, "gpu", -1.0), "price", id="negative price"),
        pytest.param(lambda: Configuration(1, 0.1, "gpu", 1.0, load=0.0), "load", id="no load"),
        pytest.param(lambda: Workload((MODULE,), (), 0.0), "SLO of 0.0", id="SLO 0"),
        pytest.param(lambda: Workload((MODULE,), (), inf), "SLO of inf", id="SLO without end"),
        pytest.param(lambda: Workload((), (), 1.0), "no module", id="no module"),
        pytest.param(lambda: Workload((MODULE, MODULE), (), 1.0), "same name", id="two of one name"),
        pytest.param(lambda: Workload((MODULE,), (("m", "x"),), 1.0), "not there: x", id="unknown node"),
        pytest.param(lambda: Workload((MODULE, OTHER), (("m", "n"), ("n", "m")), 1.0), "cycle", id="cycle"),
        pytest.param(lambda: Workload((MODULE,), (), 1.0, {"f": nan}), "takes nan s", id="delay NaN"),
    ],
)
def test_refused(make: Callable[[], object], want: str) -> None:
    with pytest.raises(InvalidWorkloadError, match=want):
        make()


ANSWERS = {name: s.solve_workload for name, s in STRATEGIES.items() if s.solve_workload} | {
    "partita-allocated": least_allocated
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("slo", [pytest.param(0.05, id="too small"), pytest.param(0.1, id="no time to collect")])
def test_no_answer_within_an_slo_that_nothing_keeps(name: str, slo: float) -> None:
    assert ANSWERS[name](chain(slo, MODULE)) is None


@pytest.mark.parametrize("name", ANSWERS)
def test_fixed_delays_count(name: str) -> None:
    """A CPU function of 0.3 s between two modules leaves them 0.3 s less."""
    edges = (("m", "f"), ("f", "n"))
    roomy = ANSWERS[name](Workload((MODULE, OTHER), edges, 1.6, {"f": 0.3}))
    full = ANSWERS[name](Workload((MODULE, OTHER), edges, 0.45, {"f": 0.3}))

    assert roomy is not None
    assert sum(roomy.latency.values()) <= 1.3
    assert full is None
