"""One module as the core sees it: who waits, how many arrive, and when to look at it next."""

from collections import Counter
from math import exp
from typing import Final

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.queue import DeadlineQueue

_WINDOW_MICROS: Final = 1_000_000


class ArrivalRate:
    """Exponentially weighted rate of arrivals, over about the last second."""

    __slots__ = ("_arrivals", "_began", "_decayed", "_updated")

    def __init__(self) -> None:
        self._began: int | None = None
        self._updated = 0
        self._decayed = 0.0
        self._arrivals = 0

    def count(self, now: int) -> None:
        """One more arrival."""
        if self._began is None:
            self._began = self._updated = now
        self._arrivals += 1

    def per_micro(self, now: int) -> float:
        """Arrivals per microsecond, as of `now`; 0 before any time has passed."""
        if self._began is None or now <= self._began:
            return 0.0
        self._decayed = self._decayed * exp((self._updated - now) / _WINDOW_MICROS) + self._arrivals
        self._updated = now
        self._arrivals = 0
        seen = 1 - exp((self._began - now) / _WINDOW_MICROS)
        return self._decayed / (_WINDOW_MICROS * seen)


class ModuleCounters:
    """What became of the requests of one module."""

    __slots__ = ("arrived", "cancelled", "dispatched", "dropped", "in_time", "late", "queueing_micros")

    def __init__(self) -> None:
        self.arrived = 0
        self.dispatched = 0
        self.in_time = 0
        self.late = 0
        self.cancelled = 0
        self.dropped: Counter[DropReason] = Counter()
        self.queueing_micros = 0


class ModuleState:
    """One module: its queue, its pipelines, and what the window policy found when it last looked."""

    __slots__ = ("blocked_until", "counters", "due", "foreseen", "name", "order", "pipelines", "queue", "rate")

    def __init__(self, name: str, order: int, pipelines: tuple[PipelineState, ...]) -> None:
        self.name = name
        self.order = order
        """Its place in the plan, which decides between equals."""
        self.pipelines = pipelines
        self.queue = DeadlineQueue()
        self.rate = ArrivalRate()
        self.counters = ModuleCounters()
        self.due: int | None = None
        """When to look at it next; None if nothing waits."""
        self.blocked_until = 0
        """Until when no path was free when it was last looked at."""
        self.foreseen: PipelineState | None = None
        """The pipeline that its next batch is meant for, if arrivals can be reckoned with without looking again."""

    def take_over(self, former: "ModuleState") -> None:
        """Go on with the queue and the counters of the same module in an earlier plan."""
        self.queue = former.queue
        self.rate = former.rate
        self.counters = former.counters
        counters = {pipeline.name: pipeline.counters for pipeline in former.pipelines}
        for pipeline in self.pipelines:
            pipeline.counters = counters.get(pipeline.name, pipeline.counters)

    def least_micros(self) -> int:
        """The shortest time in which one request can be served if nothing has to wait."""
        eligible = [pipeline for pipeline in self.pipelines if pipeline.eligible]
        return min(pipeline.total[0] for pipeline in eligible or self.pipelines)


def module_states(plan: SchedulingPlan) -> dict[str, ModuleState]:
    """The modules of a plan, by name, without workers or requests yet."""
    return {
        module.name: ModuleState(
            module.name,
            order,
            tuple(PipelineState(module.name, pipeline, plan.bandwidth) for pipeline in module.pipelines),
        )
        for order, module in enumerate(plan.modules)
    }
