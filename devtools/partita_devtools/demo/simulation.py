"""What the simulator says of the demonstration's plan, to compare with what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.profile import Profile
from partita_planner.several_sessions.offline import declared_capacity, offline_problem
from partita_runtime.load.arrivals import RateSchedule
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.executions import BatchExecution, consecutive
from partita_runtime.simulation.report import LoadPoint
from partita_runtime.simulation.simulator import simulate

LOADS: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
"""Simulated loads, as multiples of the declared rate."""
REQUESTS: Final = 1000
"""Requests that are simulated at the declared rate; at other loads in proportion."""
BATCHES_SHOWN: Final = 12
"""Batches of each replica on the timeline, on average."""


@dataclass(frozen=True)
class SimulatedPlan:
    """The plan on a virtual clock, with the batches and drops of the real scheduling core."""

    loads: tuple[LoadPoint, ...]
    """Goodput at several loads."""
    executions: tuple[BatchExecution, ...]
    """Consecutive batches from the middle of a run at the declared rate."""


def simulate_plan(
    session: InferenceSession,
    plan: PipelinePlanSpec,
    pools: Sequence[GPUPool],
    profiles: Sequence[Profile],
    seed: int,
) -> SimulatedPlan | None:
    """The plan at several loads; None without the profiles of its stages."""
    problem = offline_problem(pools, session, profiles, {p.metadata.name: declared_capacity(p) for p in pools})
    rate = session.spec.rate
    shape = float(rate.gamma_shape) if rate.gamma_shape is not None else 1.0
    run = partial(
        simulate,
        session,
        plan,
        problem.profiles,
        {pool.name: float(pool.spec.bandwidth) for pool in problem.pools},
        seconds=REQUESTS / rate.requests_per_second,
        seed=seed,
        gpus_per_node={pool.name: pool.spec.gpus_per_node for pool in problem.pools},
    )
    try:
        reports = {
            load: run(
                arrivals_at(rate.arrival, RateSchedule.constant(load * rate.requests_per_second), shape),
                timeline=load == 1.0,
            )
            for load in LOADS
        }
    except KeyError:
        return None
    points = (LoadPoint(load * rate.requests_per_second, report.goodput) for load, report in reports.items())
    executions = reports[1.0].timeline
    workers = len({execution.worker for execution in executions})
    return SimulatedPlan(tuple(points), tuple(consecutive(executions, BATCHES_SHOWN * workers)))
