"""The event loop of a simulation: arrivals, wake-ups of the core, and events of the emulated cluster by time."""

from collections.abc import Callable, Mapping, Sequence

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop
from partita_runtime.simulation.emulation.clock import NEVER, VirtualClock
from partita_runtime.simulation.emulation.cluster import EmulatedCluster
from partita_runtime.simulation.emulation.executions import BatchExecution, WorkerIdle
from partita_runtime.simulation.report import ScalingStep, SimulationReport, Tally


def run(
    clock: VirtualClock,
    core: SchedulingCore,
    cluster: EmulatedCluster,
    dropped: Callable[[Drop], None],
    times: Sequence[int],
    arrive: Callable[[int], None],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Run until no event is left.

    `arrive` is called with the number of each arrival at its time (microseconds, ascending), `progress` with the time
    of each step. At equal times, scheduled calls come first, then arrivals, then decisions of the core.
    """
    next_wakeup, next_call = core.next_wakeup, clock.next_time
    total = len(times)
    arrived = 0
    arrival = times[0] if total else NEVER
    wakeup = next_wakeup()
    while True:
        event = next_call()
        due = NEVER if wakeup is None else wakeup
        if arrival < event and arrival < due:
            clock.now = now = arrival
        else:
            now = min(event, due, arrival)
            if now == NEVER:
                break
            now = max(clock.now, now)
            clock.run_until(now)
        while arrival <= now:
            arrive(arrived)
            arrived += 1
            arrival = times[arrived] if arrived < total else NEVER
        wakeup = next_wakeup()
        if wakeup is not None and wakeup <= now:
            for action in core.advance(now):
                if isinstance(action, Dispatch):
                    cluster.carry_out(action)
                else:
                    dropped(action)
            wakeup = next_wakeup()
        if progress is not None:
            progress(now)


def report_of(
    tally: Tally,
    idle: Mapping[str, WorkerIdle],
    seconds: float,
    seed: int,
    timeline: Sequence[BatchExecution] = (),
    scaling: Sequence[ScalingStep] = (),
) -> SimulationReport:
    """The report of a simulation that has ended."""
    by_pool: dict[str, list[float]] = {}
    for worker in idle.values():
        by_pool.setdefault(worker.pool, []).append(worker.fraction)
    return SimulationReport(
        seconds=seconds,
        seed=seed,
        offered=tally.offered,
        in_time=tally.in_time,
        late=tally.late,
        dropped=dict(tally.dropped),
        p50_ms=tally.percentile_ms(50),
        p99_ms=tally.percentile_ms(99),
        idle_by_pool={pool: sum(fractions) / len(fractions) for pool, fractions in by_pool.items()},
        idle_by_worker={name: worker.fraction for name, worker in idle.items()},
        batch_sizes={name: dict(sorted(sizes.items())) for name, sizes in tally.batch_sizes.items()},
        timeline=tuple(timeline),
        scaling=tuple(scaling),
    )
