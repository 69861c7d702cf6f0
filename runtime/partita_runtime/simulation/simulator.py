"""The simulation of a session under a plan: which requests are answered in time, and how busy the workers are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from partita_api.inferencesession import InferenceSession, InferenceSessionSpec
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.profile import Profile
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.plan import SchedulingPlan, scheduling_plan
from partita_runtime.simulation.application import SimulatedApplication
from partita_runtime.simulation.arrivals import Arrivals, arrivals_of
from partita_runtime.simulation.emulated_system import EmulatedSystem, Environment
from partita_runtime.simulation.emulation.failures import Failure
from partita_runtime.simulation.emulation.network import NO_CONTENTION, Contention
from partita_runtime.simulation.emulation.noise import EXACT, NO_DELAYS, Delays, Noise
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.event_loop import run
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.scaling import Scaling

Progress = Callable[[float], None]
"""Called with the share of the simulated time that has passed."""

_PROGRESS_STEPS: Final = 100


def simulate(
    session: InferenceSession,
    plan: PipelinePlanSpec,
    profiles: Mapping[tuple[str, str], Profile],
    bandwidth: Mapping[str, float] = MappingProxyType({}),
    arrivals: Arrivals | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    *,
    noise: Noise = EXACT,
    failures: Sequence[Failure] = (),
    delays: Delays = NO_DELAYS,
    contention: Contention = NO_CONTENTION,
    scaling: Scaling | None = None,
    gpus_per_node: Mapping[str, int] | None = None,
    policy: str | None = None,
    timeline: bool = False,
    progress: Progress | None = None,
) -> SimulationReport:
    """Run a plan for `seconds` of virtual time, and then until all requests have ended.

    Requests arrive as the session declares, unless `arrivals` are given. Profiles are by (module, pool), bandwidth in
    bit/s (by default, transfers take no time) and GPUs per node by pool; `policy` (see `policies.registry`)
    replaces that of the session. The same arguments give the same report, bit for bit. Raises KeyError with the
    (module, pool) whose profile is missing, ValueError for invalid arguments.
    """
    scheduled = scheduling_plan("simulated", session.spec, plan, profiles, bandwidth)
    if policy is not None:
        scheduled = scheduled.model_copy(update={"policy": policy})
    return simulate_scheduling(
        session.spec,
        scheduled,
        arrivals_of(session.spec.rate) if arrivals is None else arrivals,
        seconds,
        seed,
        noise=noise,
        failures=failures,
        delays=delays,
        contention=contention,
        scaling=scaling,
        placed=placements(scheduled, gpus_per_node),
        timeline=timeline,
        progress=progress,
    )


def simulate_scheduling(
    session: InferenceSessionSpec,
    plan: SchedulingPlan,
    arrivals: Arrivals,
    seconds: float,
    seed: int,
    *,
    noise: Noise = EXACT,
    failures: Sequence[Failure] = (),
    delays: Delays = NO_DELAYS,
    contention: Contention = NO_CONTENTION,
    scaling: Scaling | None = None,
    placed: Sequence[WorkerPlacement] | None = None,
    timeline: bool = False,
    progress: Progress | None = None,
    core: SchedulingCore | None = None,
) -> SimulationReport:
    """Run a scheduling plan like `simulate`, optionally with given placements or with a given (recorded) core.

    With `scaling`, the autoscaler places the workers.
    """
    environment = Environment(noise, failures, delays, contention, scaling, placed, timeline)
    system = EmulatedSystem(plan, seconds, environment, core)
    arriving, noisy, fanning, failing = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4))
    times = np.rint(arrivals(seconds, arriving) * 1e6).astype(np.int64).tolist()
    application = SimulatedApplication(session, plan, system.core, system.clock, fanning)
    cluster = system.start(application.answered, noisy, failing)
    gate = None if system.scaler is None else system.scaler.gate(application)
    arrive = application.arrive if gate is None else gate.arrive
    reported = _progress_by_time(progress, system.horizon)
    run(system.clock, system.core, cluster, application.dropped, times, lambda _: arrive(), reported)
    (report,) = system.report(cluster, [application.tally], seed)
    if gate is None:
        return report
    return replace(report, held=gate.meter.held, held_seconds=gate.meter.held_micros / 1e6)


def _progress_by_time(progress: Progress | None, horizon: int) -> Callable[[int], None] | None:
    """Calls `progress` after each hundredth of the horizon."""
    reported = 0

    def report(now: int) -> None:
        nonlocal reported
        if progress is not None and now * _PROGRESS_STEPS >= (reported + 1) * horizon and now <= horizon:
            reported = now * _PROGRESS_STEPS // horizon
            progress(now / horizon)

    return None if progress is None else report
