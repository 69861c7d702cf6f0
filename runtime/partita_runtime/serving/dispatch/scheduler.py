"""The scheduler of a dispatcher: the interface, and the core in the frontend's own process.

`central.remote_scheduler` is the one for a session with several frontends.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Action, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.scheduling.trace import RecordedCore
from partita_runtime.serving.transport.clock import now_micros

TIMER_MICROS: Final = 1_000
"""Resolution of the event loop's timers."""


CarryOut = Callable[[Sequence[Action], int, int], None]
"""Carries out decisions: the actions, when they were due, and by how much that was missed (microseconds)."""


class Scheduler(Protocol):
    """Learns events from a dispatcher, and has its decisions carried out on the event loop.

    Methods without a docstring mean the same as in `scheduling.core.SchedulingCore`.
    """

    @property
    def ready(self) -> bool:
        """Whether the scheduler can decide."""

    def now(self) -> int:
        """The time of the next events. Decisions that were due before are made first."""

    def wake(self) -> None:
        """Decide at the end of this turn of the event loop, once for all of its events."""

    def tick(self) -> None:
        """To be called a few times a second."""

    def close(self) -> None:
        """Make no more decisions."""

    def signals(self) -> CoreSignals | None:
        """The counters; None if the coordinator has them."""

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None: ...

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int) -> None: ...

    def worker_draining(self, worker: str, now: int) -> None: ...

    def worker_lost(self, worker: str, now: int) -> None: ...

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None: ...

    def worker_busy(self, worker: str, until: int, now: int) -> None: ...

    def arrive(self, request_id: int, module: str, deadline: int, now: int, call: int) -> None: ...

    def cancel(self, request_id: int, now: int) -> None: ...

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None: ...

    def transferred(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None: ...

    def failed(self, batch_id: int, now: int, reason: str = "") -> None: ...

    def lost(self, batch_id: int, now: int) -> None: ...


MakeScheduler = Callable[[SchedulingPlan, str, CarryOut], Scheduler]
"""Makes the scheduler of a plan for the dispatcher with this id."""


class Alarm:
    """Calls back at the end of a turn of the event loop, and at a given time."""

    def __init__(self, decide: Callable[[int], int | None]) -> None:
        """`decide` receives when it was due, and returns when to call it next; None for never."""
        self._decide = decide
        self._called = False
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Call back at the end of this turn."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._ring, now_micros())

    def _ring(self, due: int) -> None:
        self._called = False
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
        """`traces` is a directory for a trace of the core's events and decisions."""
        self._carry_out = carry_out
        self._trace = None if traces is None else (traces / f"{plan.name}-{name}.jsonl").open("w")
        self._core = SchedulingCore(plan) if self._trace is None else RecordedCore(plan, self._record)
        self._alarm = Alarm(self._ring)
        self._sending_micros = 0
        """What the core allows for a batch's way to its first stage, whatever its size."""
        self.ready = True
        self.arrive = self._core.arrive
        self.cancel = self._core.cancel
        self.completed = self._core.completed
        self.transferred = self._core.transferred
        self.failed = self._core.failed
        self.lost = self._core.lost
        self.worker_joined = self._core.worker_joined
        self.worker_draining = self._core.worker_draining
        self.worker_lost = self._core.worker_lost
        self.worker_left = self._core.worker_left
        self.worker_busy = self._core.worker_busy
        self.wake = self._alarm.wake

    def now(self) -> int:
        """The time. Decisions that were due before are made first."""
        now = now_micros()
        wakeup = self._core.next_wakeup()
        if wakeup is not None and wakeup < now:
            self._decide(wakeup)
        return now

    def tick(self) -> None:
        """Nothing to do: the core learns every event at once."""

    def close(self) -> None:
        """Make no more decisions."""
        self._alarm.silence()
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    def signals(self) -> CoreSignals:
        """The core's counters."""
        return self._core.signals(now_micros())

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Set what the core allows for a batch's way to its first stage."""
        self._sending_micros = ctrl_micros
        self._core.set_delays(ctrl_micros, per_request_micros)

    def _ring(self, due: int) -> int | None:
        self._decide(due)
        return self._core.next_wakeup()

    def _decide(self, due: int) -> None:
        """Have the core decide what was due at `due`.

        The delays that the core allows for include the usual lateness of the event loop. So the core gets the time
        that it waited for, up to those delays ago. With the later, real time its batch would miss the deadline.
        """
        now = now_micros()
        at = max(due, now - self._sending_micros)
        self._carry_out(self._core.advance(at), at, max(0, now - due))

    def _record(self, line: str) -> None:
        if self._trace is not None:
            self._trace.write(line + "\n")
