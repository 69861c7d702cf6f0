"""The trace of a scheduling core: every call that changes it and every decision, one JSON array per line.

    ["plan", {...}]
    ["worker_joined", ["detect", "a", 0], "worker-0", "node-0", 1000, null]
    ["arrive", 17, "detect", 98000, 1250, null]
    ["advance", 3000, [["dispatch", 0, "detect", "a", [17], ["worker-0"], [3000], 9000, 98000, [], null, [], 89000]]]

A replay (`simulation.trace_replay`) makes the same decisions.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan

_PLAN: Final = "plan"
_ADVANCE: Final = "advance"
_CALLS: Final = frozenset(
    {
        "set_delays",
        "worker_joined",
        "worker_draining",
        "worker_lost",
        "worker_left",
        "worker_busy",
        "arrive",
        "cancel",
        "completed",
        "transferred",
        "failed",
        "lost",
        "unreported",
        "switch_plan",
    }
)


class RecordedCore(SchedulingCore):
    """A scheduling core that writes every call and its result as a line of a trace (without line end)."""

    def __init__(self, plan: SchedulingPlan, write: Callable[[str], None]) -> None:
        super().__init__(plan)
        self._write = write
        self._record(_PLAN, plan.model_dump(mode="json"))

    def _record(self, call: str, *arguments: object) -> None:
        self._write(json.dumps([call, *arguments], separators=(",", ":")))

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        super().set_delays(ctrl_micros, per_request_micros)
        self._record("set_delays", ctrl_micros, per_request_micros)

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int, plan: str | None = None) -> None:
        super().worker_joined(stage, worker, node, now, plan)
        self._record("worker_joined", stage, worker, node, now, plan)

    def worker_draining(self, worker: str, now: int) -> None:
        super().worker_draining(worker, now)
        self._record("worker_draining", worker, now)

    def worker_lost(self, worker: str, now: int) -> None:
        super().worker_lost(worker, now)
        self._record("worker_lost", worker, now)

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None:
        super().worker_left(stage, worker, now)
        self._record("worker_left", stage, worker, now)

    def worker_busy(self, worker: str, until: int, now: int) -> None:
        super().worker_busy(worker, until, now)
        self._record("worker_busy", worker, until, now)

    def arrive(self, request_id: int, module: str, deadline: int, now: int, call: int | None = None) -> None:
        super().arrive(request_id, module, deadline, now, call)
        self._record("arrive", request_id, module, deadline, now, call)

    def cancel(self, request_id: int, now: int) -> None:
        super().cancel(request_id, now)
        self._record("cancel", request_id, now)

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        super().completed(batch_id, stage, now, took)
        self._record("completed", batch_id, stage, now, took)

    def transferred(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        super().transferred(batch_id, stage, now, took)
        self._record("transferred", batch_id, stage, now, took)

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        super().failed(batch_id, now, reason)
        self._record("failed", batch_id, now, reason)

    def lost(self, batch_id: int, now: int) -> None:
        super().lost(batch_id, now)
        self._record("lost", batch_id, now)

    def unreported(self, batch_id: int, now: int) -> None:
        super().unreported(batch_id, now)
        self._record("unreported", batch_id, now)

    def switch_plan(self, plan: SchedulingPlan, now: int) -> None:
        super().switch_plan(plan, now)
        self._record("switch_plan", plan.model_dump(mode="json"), now)

    def advance(self, now: int) -> list[Action]:
        actions = super().advance(now)
        self._record(_ADVANCE, now, [_encode(action) for action in actions])
        return actions


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call: a method of the core, its arguments and, for `advance`, its result."""

    method: str
    arguments: tuple[Any, ...]
    decided: tuple[Action, ...] = ()

    def repeat(self, core: SchedulingCore) -> tuple[Action, ...]:
        """Make the call on another core; returns the decisions."""
        return tuple(getattr(core, self.method)(*self.arguments) or ())


def read_trace(lines: Iterable[str]) -> tuple[SchedulingPlan, Iterator[RecordedCall]]:
    """The plan of a trace and its calls, which are read lazily.

    Raises ValueError with the line number if the text is not a trace.
    """
    numbered = enumerate(lines, start=1)
    first = next(numbered, (1, ""))
    name, *arguments = _parse(*first)
    if name != _PLAN or len(arguments) != 1:
        raise ValueError(f"line 1: a trace begins with the plan, not with {name!r}")
    return SchedulingPlan.model_validate(arguments[0]), (_call(number, line) for number, line in numbered)


def _call(number: int, line: str) -> RecordedCall:
    name, *arguments = _parse(number, line)
    if name != _ADVANCE and name not in _CALLS:
        raise ValueError(f"line {number}: the scheduling core has no call {name!r}")
    decided: tuple[Action, ...] = ()
    try:
        if name == _ADVANCE:
            now, encoded = arguments
            arguments, decided = [now], tuple(_decode(action) for action in encoded)
        elif name in ("worker_joined", "worker_left"):
            arguments[0] = StageRef(*arguments[0])
        elif name == "switch_plan":
            arguments[0] = SchedulingPlan.model_validate(arguments[0])
        signature(getattr(SchedulingCore, name)).bind(None, *arguments)
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"line {number}: {error}") from error
    return RecordedCall(name, tuple(arguments), decided)


def _parse(number: int, line: str) -> list[Any]:
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: invalid JSON ({error})") from error
    if not isinstance(parsed, list) or not parsed or not isinstance(parsed[0], str):
        raise ValueError(f"line {number}: not a JSON array that begins with the name of a call")
    return parsed


def _encode(action: Action) -> list[object]:
    return ["dispatch" if isinstance(action, Dispatch) else "drop", *action]


def _decode(encoded: list[Any]) -> Action:
    kind, *values = encoded
    if kind == "dispatch":
        values = [tuple(value) if isinstance(value, list) else value for value in values]
        return Dispatch(*values)
    request_id, module, reason, detail = values
    return Drop(request_id, module, DropReason(reason), detail)
