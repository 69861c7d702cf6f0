"""Plans with sub-clusters, simulated by the same core that serves them."""

import pytest
from tests.builders import pool, problem, profile, session

from partita_planner.plan import plan
from partita_planner.problem import Planned
from partita_runtime.scheduling.plan import scheduling_plan
from partita_runtime.simulation.arrivals import arrivals_of
from partita_runtime.simulation.placement import placements
from partita_runtime.simulation.scaling import Scaling
from partita_runtime.simulation.simulate import simulate


def test_models_that_share_two_gpus_are_in_time_and_keep_them_busy() -> None:
    built = session("s").slo(250).rate(100).chain(*"abc")
    built = built.planner(share_gpus=True, max_batch_size=2, strategy="no-partitioning", headroom_percent=10)
    profiles = [profile(m).batches(1, 2).linear(2000, 8000) for m in "abc"]
    asked = problem(built, [pool("fast").gpus(8)], profiles)
    outcome = plan(asked)
    assert isinstance(outcome, Planned), outcome
    assert outcome.plan.gpus() == {"fast": 2}
    session_spec = built.build()
    placed = placements(scheduling_plan("p", session_spec.spec, outcome.plan, asked.profiles, {"fast": 1e10}))
    assert len(placed) == 6
    assert len({place.worker for place in placed}) == len({place.gpu for place in placed}) == 2
    arrivals = arrivals_of(session_spec.spec.rate)
    report = simulate(session_spec, outcome.plan, asked.profiles, {"fast": 1e10}, arrivals=arrivals, seconds=10, seed=1)
    assert report.attainment > 0.99
    assert len(report.idle_by_worker) == 2
    assert all(idle < 0.4 for idle in report.idle_by_worker.values()), report.idle_by_worker
    with pytest.raises(ValueError, match="a plan with sub-clusters cannot be scaled in simulation"):
        Scaling(plan=outcome.plan, settings=session_spec.spec.autoscaling, gpus={"fast": 8})
