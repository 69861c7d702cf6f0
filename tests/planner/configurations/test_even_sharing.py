"""If single requests are dispatched, machines of one configuration share the load evenly. Harpagon's M3 (Table I)."""

import pytest
from tests.planner.configurations.workloads import HARPAGON_M3

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules, schedule_module
from partita_planner.configurations.workload import WorkloadModule


@pytest.mark.parametrize(
    ("rate", "budget", "most", "want_batch", "want_latency"),
    [
        pytest.param(198, 1.0, 1, 8, 0.25 + 8 / (198 / 7), id="one configuration: 7 machines, each collecting at 1/7"),
        pytest.param(192, 0.5, 1, 8, 0.5, id="6 machines at full load: 2d"),
        pytest.param(193, 0.5, 2, 2, 0.1 + 2 / (193 / 10), id="two, and no batch is in time for the last request"),
    ],
)
def test_machines_of_one_configuration(
    rate: float, budget: float, most: int, want_batch: int, want_latency: float
) -> None:
    rules = SchedulingRules(DispatchModel.ROUND_ROBIN, max_configurations=most, dummies=Dummies.NONE)

    schedule = schedule_module(WorkloadModule("m3", rate, HARPAGON_M3), budget, rules)

    assert schedule is not None
    assert [a.configuration.batch for a in schedule.allocations] == [want_batch]
    assert schedule.latency == pytest.approx(want_latency)


def test_what_is_too_slow_even_so_has_no_schedule() -> None:
    rules = SchedulingRules(DispatchModel.ROUND_ROBIN, max_configurations=1, dummies=Dummies.NONE)

    assert schedule_module(WorkloadModule("m3", 193, HARPAGON_M3), 0.15, rules) is None
