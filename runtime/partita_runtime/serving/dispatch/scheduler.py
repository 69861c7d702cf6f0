"""Where a dispatcher's decisions are made: in its own process, or in the rank that several frontends share."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Action, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.scheduling.trace import RecordedCore

TIMER_MICROS: Final = 1_000
"""What the event loop's timers are exact to."""


def now_micros() -> int:
    """The clock of all deadlines; the event loop's, in microseconds."""
    return time.monotonic_ns() // 1000


CarryOut = Callable[[Sequence[Action], int, int], None]
"""Takes what was decided, the moment that it was decided for, and by how much that was missed (microseconds)."""


class Scheduler(Protocol):
    """What a dispatcher tells how things are. It answers, on the event loop, by having its decisions carried out.

    The calls mean what those of `scheduling.core.SchedulingCore` mean.
    """

    @property
    def ready(self) -> bool:
        """Whether decisions are made at all."""

    def now(self) -> int:
        """Now, to tell what happens; what was to be decided before comes first."""

    def wake(self) -> None:
        """Decide, once for all that happens in this turn of the event loop."""

    def tick(self) -> None:
        """To be called a few times a second."""

    def close(self) -> None:
        """Decide nothing more."""

    def signals(self) -> CoreSignals | None:
        """The counters as they stand; None if they are kept elsewhere."""

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None: ...

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int) -> None: ...

    def worker_draining(self, worker: str, now: int) -> None: ...

    def worker_lost(self, worker: str, now: int) -> None: ...

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None: ...

    def worker_busy(self, worker: str, until: int, now: int) -> None: ...

    def arrive(self, request_id: int, module: str, deadline: int, now: int) -> None: ...

    def cancel(self, request_id: int, now: int) -> None: ...

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None: ...

    def failed(self, batch_id: int, now: int, reason: str = "") -> None: ...

    def lost(self, batch_id: int, now: int) -> None: ...


MakeScheduler = Callable[[SchedulingPlan, str, CarryOut], Scheduler]
"""Makes what decides for a plan, on behalf of the dispatcher of this id."""


class Alarm:
    """Calls back once a turn of the event loop when it is asked to, and at a time that it is told."""

    def __init__(self, decide: Callable[[int], int | None]) -> None:
        """`decide` is told when it should have been called, and answers when to be called next, if ever."""
        self._decide = decide
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Call back at the end of this turn."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._ring, now_micros())

    def _ring(self, due: int) -> None:
        self._awake = False
        self.silence()
        at = self._decide(due)
        if at is not None:
            wait = max(0, at - TIMER_MICROS - now_micros()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait, self._ring, at)

    def silence(self) -> None:
        """Forget the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class CoreInProcess:
    """The scheduling core of one plan, in the frontend's own process."""

    def __init__(self, plan: SchedulingPlan, name: str, carry_out: CarryOut, traces: Path | None = None) -> None:
        """`traces` is a directory for a trace of everything that the core is told and decides."""
        self._carry_out = carry_out
        self._trace = None if traces is None else (traces / f"{plan.name}-{name}.jsonl").open("w")
        self._core = SchedulingCore(plan) if self._trace is None else RecordedCore(plan, self._record)
        self._alarm = Alarm(self._ring)
        self._sending_micros = 0
        """What the core allows for a batch's way, whatever its size."""
        self.ready = True
        self.arrive = self._core.arrive
        self.cancel = self._core.cancel
        self.completed = self._core.completed
        self.failed = self._core.failed
        self.lost = self._core.lost
        self.worker_joined = self._core.worker_joined
        self.worker_draining = self._core.worker_draining
        self.worker_lost = self._core.worker_lost
        self.worker_left = self._core.worker_left
        self.worker_busy = self._core.worker_busy
        self.wake = self._alarm.wake

    def now(self) -> int:
        """Now, once what the core had to decide before is decided."""
        now = now_micros()
        wakeup = self._core.next_wakeup()
        if wakeup is not None and wakeup < now:
            self._decide(wakeup)
        return now

    def tick(self) -> None:
        """Nothing to do: the core is told everything at once."""

    def close(self) -> None:
        """Decide nothing more."""
        self._alarm.silence()
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    def signals(self) -> CoreSignals:
        """The core's counters as they stand."""
        return self._core.signals(now_micros())

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """As the core's."""
        self._sending_micros = ctrl_micros
        self._core.set_delays(ctrl_micros, per_request_micros)

    def _ring(self, due: int) -> int | None:
        self._decide(due)
        return self._core.next_wakeup()

    def _decide(self, due: int) -> None:
        """Have the core decide what it should have been asked for at `due`.

        How late the event loop usually is, is part of a batch's way, which the core has allowed for. So it is told
        the moment that it waited for, not the later one, from which its batch would not be in time any more.
        """
        now = now_micros()
        at = max(due, now - self._sending_micros)
        self._carry_out(self._core.advance(at), at, max(0, now - due))

    def _record(self, line: str) -> None:
        if self._trace is not None:
            self._trace.write(line + "\n")
