"""Which module to look at when."""

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.workers.free_index import NEVER, FreeIndex


class Agenda:
    """Modules by the time at which to look at them, those with equal times in the order of the plan.

    A tree and no heap: most arrivals bring the time of their module forward, and nothing outdated may pile up.
    """

    __slots__ = ("_index", "_modules")

    def __init__(self, modules: list[ModuleState]) -> None:
        self._modules = modules
        self._index = FreeIndex([NEVER] * len(modules))

    def look(self, module: ModuleState, at: int) -> None:
        """Look at a module at a time, unless it is to be looked at before."""
        if at < module.due:
            module.due = at
            self._index.set(module.order, at)

    def next_time(self) -> int:
        """When to look at a module next; NEVER if nothing waits."""
        return self._index.least()

    def next_due(self, now: int) -> ModuleState | None:
        """The next module that is to be looked at now, if any, to be settled thereafter; nothing is in its `due`."""
        index = self._index
        if index.least() > now:
            return None
        module = self._modules[index.earliest()]
        module.due = NEVER
        return module

    def settle(self, module: ModuleState) -> None:
        """Look at a module again at what is in its `due`."""
        self._index.set(module.order, module.due)
