"""What the report shows of the simulator beside the measurements."""

from tests.builders import pool, problem, profile, session

from partita_devtools.demo.simulation import BATCHES_SHOWN, LOADS, SimulatedPlan, simulate_plan
from partita_planner.planning import plan
from partita_planner.problem import NoPlan

POOLS = [pool("fast").gpus(2)]
PROFILES = [profile("detector").linear(1000, 4000)]
RATE = 500
SESSION = session("shop").model("detector").slo(100).rate(RATE)


def simulated(*, profiled: bool = True) -> SimulatedPlan | None:
    outcome = plan(problem(SESSION, POOLS, PROFILES))
    assert not isinstance(outcome, NoPlan)
    profiles = [one.build() for one in PROFILES] if profiled else []
    return simulate_plan(SESSION.build(), outcome.plan, [one.build() for one in POOLS], profiles, seed=3)


def test_goodput_follows_the_load_until_the_plan_is_full() -> None:
    found = simulated()

    assert found is not None
    assert [point.offered for point in found.loads] == [RATE * load for load in LOADS]
    planned = next(point for point in found.loads if point.offered == RATE)
    assert planned.goodput > 0.95 * RATE
    assert found.loads[-1].goodput < 0.95 * found.loads[-1].offered


def test_batches_on_the_timeline_follow_each_other() -> None:
    found = simulated()

    assert found is not None
    starts = [execution.start_micros for execution in found.executions]
    workers = {execution.worker for execution in found.executions}
    assert starts == sorted(starts)
    assert 0 < len(starts) <= BATCHES_SHOWN * len(workers)


def test_without_profiles_there_is_nothing_to_show() -> None:
    assert simulated(profiled=False) is None
