"""Plans with sub-clusters, simulated by the same core that serves them."""

import pytest
from tests.builders import pool, problem, profile, session

from partita_api.inferencesession import ArrivalProcess
from partita_planner.planning import plan
from partita_planner.problem import Planned
from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import (
    ScheduledModule,
    ScheduledPipeline,
    ScheduledStage,
    SchedulingPlan,
    scheduling_plan,
)
from partita_runtime.simulation.arrivals import arrivals_at, arrivals_of
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.scaling import Scaling
from partita_runtime.simulation.simulator import simulate
from partita_runtime.simulation.streams import RequestStream, simulate_streams


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


@pytest.mark.parametrize(
    ("models", "gpus", "slo_ms", "rate"), [(64, 8, 25, 1000), (16, 4, 25, 500), (120, 16, 40, 1500)]
)
def test_rare_requests_of_many_models_are_in_time_while_gpus_are_idle(
    models: int, gpus: int, slo_ms: float, rate: float
) -> None:
    latency = tuple(1053 * b + 5072 for b in range(1, 9))
    stage = ScheduledStage(
        pool="gpu", first_block=0, end_block=1, vgpu_divisor=1, replicas=gpus, latency_micros=latency
    )
    pipelines = (ScheduledPipeline(name="a", batch_size=8, stages=(stage,)),)
    names = [f"m{number}" for number in range(models)]
    made = SchedulingPlan(
        name="shared",
        modules=tuple(
            ScheduledModule(name=name, budget_micros=0, downstream_micros=0, pipelines=pipelines) for name in names
        ),
    )
    placed = [WorkerPlacement(StageRef(name, "a", 0), f"gpu-{n}", f"node-{n}") for n in range(gpus) for name in names]
    streams = [RequestStream(name, arrivals_at(ArrivalProcess.POISSON, rate / models), slo_ms) for name in names]
    reports = simulate_streams(made, streams, 4, 1, placed=placed)
    offered = sum(report.offered for report in reports.values())
    assert sum(report.in_time for report in reports.values()) >= 0.999 * offered
    idle = reports[names[0]].idle_by_worker
    assert sum(idle.values()) / gpus > 0.25, "batches are still deferred"
