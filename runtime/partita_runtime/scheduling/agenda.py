"""Which module to look at when."""

from heapq import heappop, heappush

from partita_runtime.scheduling.free_index import NEVER
from partita_runtime.scheduling.modules import ModuleState


class Agenda:
    """Modules by the time at which to look at them, those with equal times in the order of the plan.

    A heap of integers, time and number of the module in one; an entry that is not its module's `due` any more is
    skipped.
    """

    __slots__ = ("_entries", "_modules", "_number")

    def __init__(self, modules: list[ModuleState]) -> None:
        self._modules = modules
        self._number = len(modules)
        self._entries: list[int] = []

    def look(self, module: ModuleState, at: int) -> None:
        """Look at a module at a time, unless it is to be looked at before."""
        if at < module.due:
            module.due = at
            heappush(self._entries, at * self._number + module.order)

    def settle(self, module: ModuleState) -> None:
        """Look at a module at what is in its `due`."""
        if module.due != NEVER:
            heappush(self._entries, module.due * self._number + module.order)

    def next_time(self) -> int:
        """When to look at a module next; NEVER if nothing waits."""
        entries = self._entries
        while entries:
            at = entries[0] // self._number
            if self._modules[entries[0] - at * self._number].due == at:
                return at
            heappop(entries)
        return NEVER

    def take_due(self, now: int) -> ModuleState | None:
        """The next module that is to be looked at now, if any; it is off the agenda."""
        entries, number = self._entries, self._number
        while entries:
            at = entries[0] // number
            if at > now:
                break
            module = self._modules[heappop(entries) - at * number]
            if module.due == at:
                module.due = NEVER
                return module
        return None
