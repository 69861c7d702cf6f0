"""When each module is evaluated next."""

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.workers.free_index import NEVER, FreeIndex


class WakeUpQueue:
    """Modules by the time of their next evaluation; equal times are in the order of the plan.

    A tree instead of a heap: most arrivals move the time of their module forward, and a heap would fill with outdated
    entries.
    """

    __slots__ = ("_index", "_modules")

    def __init__(self, modules: list[ModuleState]) -> None:
        self._modules = modules
        self._index = FreeIndex([NEVER] * len(modules))

    def schedule(self, module: ModuleState, at: int) -> None:
        """Evaluate a module at a time, or earlier if that is already scheduled."""
        if at < module.due:
            module.due = at
            self._index.set(module.order, at)

    def next_time(self) -> int:
        """The time of the next evaluation; NEVER if no module is scheduled."""
        return self._index.least()

    def next_due(self, now: int) -> ModuleState | None:
        """The next module that is due, with its `due` cleared; call `reschedule` after its evaluation."""
        index = self._index
        if index.least() > now:
            return None
        module = self._modules[index.earliest()]
        module.due = NEVER
        return module

    def reschedule(self, module: ModuleState) -> None:
        """Evaluate a module again at its `due`."""
        self._index.set(module.order, module.due)
