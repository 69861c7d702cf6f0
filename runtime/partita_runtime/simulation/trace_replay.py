"""The replay of a trace: the same calls give the same decisions; else it shows the first difference."""

from collections.abc import Iterable
from dataclasses import dataclass

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Action
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.scheduling.trace import read_trace


@dataclass(frozen=True)
class Difference:
    """A call of `advance` with other decisions."""

    line: int
    now: int
    recorded: tuple[Action, ...]
    replayed: tuple[Action, ...]


@dataclass(frozen=True)
class Replay:
    """The result of a replay."""

    calls: int
    decisions: int
    difference: Difference | None
    """The first difference; the replay stops there, as later batches have other numbers."""
    signals: CoreSignals
    """The core's counters where the replay stopped."""


def replay(lines: Iterable[str]) -> Replay:
    """Make the calls of a trace (see `scheduling.trace`) on a new core, and compare the decisions.

    Raises ValueError with the line number if the lines are not a trace.
    """
    plan, calls = read_trace(lines)
    core = SchedulingCore(plan)
    made = decisions = now = 0
    for line, call in enumerate(calls, start=2):
        replayed = call.repeat(core)
        made += 1
        if call.method == "advance":
            now = call.arguments[0]
            decisions += len(replayed)
            if replayed != call.decided:
                return Replay(made, decisions, Difference(line, now, call.decided, replayed), core.signals(now))
    return Replay(made, decisions, None, core.signals(now))
