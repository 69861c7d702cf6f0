"""The loop of a simulation: what happens next, by the core's wake-ups, the arrivals and the emulated cluster."""

from collections.abc import Callable, Mapping, Sequence

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop
from partita_runtime.simulation.emulation.clock import NEVER, VirtualClock
from partita_runtime.simulation.emulation.cluster import EmulatedCluster
from partita_runtime.simulation.report import BatchExecution, ScalingStep, SimulationReport, Tally


def run(
    clock: VirtualClock,
    core: SchedulingCore,
    cluster: EmulatedCluster,
    dropped: Callable[[Drop], None],
    times: Sequence[int],
    arrive: Callable[[int], None],
    tell: Callable[[int], None] | None = None,
) -> None:
    """Go on until nothing is left to happen.

    `arrive` is called with the number of each arrival at its time (microseconds, ascending), `tell` with the time of
    each step. At one moment, what was scheduled comes first, then arrivals, then the core's decisions.
    """
    next_wakeup = core.next_wakeup
    calls = clock.calls
    total = len(times)
    arrived = 0
    arrival = times[0] if total else NEVER
    wakeup = next_wakeup()
    while True:
        event = calls[0][0] if calls else NEVER
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
        if tell is not None:
            tell(now)


def ended(
    tally: Tally,
    idle: Mapping[str, tuple[str, float]],
    seconds: float,
    seed: int,
    timeline: Sequence[BatchExecution] = (),
    scaling: Sequence[ScalingStep] = (),
) -> SimulationReport:
    """The report of a simulation that has ended."""
    by_pool: dict[str, list[float]] = {}
    for pool, fraction in idle.values():
        by_pool.setdefault(pool, []).append(fraction)
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
        idle_by_worker={name: fraction for name, (_, fraction) in idle.items()},
        batch_sizes={name: dict(sorted(sizes.items())) for name, sizes in tally.batch_sizes.items()},
        timeline=tuple(timeline),
        scaling=tuple(scaling),
    )
