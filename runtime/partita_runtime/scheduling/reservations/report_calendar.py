"""When the report of each execution must have arrived."""

from heapq import heappop, heappush
from typing import Final

from partita_runtime.scheduling.workers.timeline import Reservation

_SLOT_BITS: Final = 8
"""Slots of 256 microseconds."""


class ReportCalendar:
    """Executions by the time at which their reports are due.

    Most reports arrive in time, and their entries are never read. So entries are kept unsorted in slots of time, and
    only executions that are not done when their slot begins go into a heap: with thousands of busy workers, one heap of
    all executions would cost more than the rest of the core.
    """

    __slots__ = ("_begun", "_begun_before", "_slot_order", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, list[Reservation]] = {}
        self._slot_order: list[int] = []
        """Heap of the slots."""
        self._begun: list[tuple[int, int, int, Reservation]] = []
        """Heap of the executions that were not done when their slot began: (due, batch, stage, execution)."""
        self._begun_before = 0
        """The first slot that has not begun."""

    def expect(self, execution: Reservation, due: int) -> None:
        """The report of an execution must arrive by `due` (microseconds)."""
        execution.report_due = due
        slot = due >> _SLOT_BITS
        if slot < self._begun_before:
            self._begin(execution)
            return
        executions = self._slots.get(slot)
        if executions is None:
            self._slots[slot] = [execution]
            heappush(self._slot_order, slot)
        else:
            executions.append(execution)

    def take_overdue(self, now: int) -> Reservation | None:
        """Remove and return the next overdue execution, by time, batch and stage; None if there is none."""
        if now >> _SLOT_BITS >= self._begun_before:
            self._begin_slots(now >> _SLOT_BITS)
        while self._begun and self._begun[0][0] <= now:
            execution = heappop(self._begun)[3]
            if not execution.done:
                return execution
        return None

    def _begin_slots(self, last: int) -> None:
        self._begun_before = last + 1
        while self._slot_order and self._slot_order[0] <= last:
            for execution in self._slots.pop(heappop(self._slot_order)):
                if not execution.done:
                    self._begin(execution)

    def _begin(self, execution: Reservation) -> None:
        heappush(self._begun, (execution.report_due, execution.batch_id, execution.stage, execution))
