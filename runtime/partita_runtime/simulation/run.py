"""The loop of a simulation: what happens next, by the core's wake-ups, the arrivals and the emulated cluster."""

from collections.abc import Callable, Mapping, Sequence

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop
from partita_runtime.simulation.clock import VirtualClock
from partita_runtime.simulation.cluster import EmulatedCluster
from partita_runtime.simulation.report import Execution, ScalingStep, SimulationReport, Tally


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
    each step.
    """
    arrived = 0
    while True:
        arrival = times[arrived] if arrived < len(times) else None
        upcoming = [time for time in (clock.next_time, core.next_wakeup(), arrival) if time is not None]
        if not upcoming:
            break
        now = max(clock.now, min(upcoming))
        clock.run_until(now)
        while arrived < len(times) and times[arrived] <= now:
            arrive(arrived)
            arrived += 1
        due = core.next_wakeup()
        if due is not None and due <= now:
            for action in core.advance(now):
                if isinstance(action, Dispatch):
                    cluster.carry_out(action)
                else:
                    dropped(action)
        if tell is not None:
            tell(now)


def ended(
    tally: Tally,
    idle: Mapping[str, tuple[str, float]],
    seconds: float,
    seed: int,
    timeline: Sequence[Execution] = (),
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
