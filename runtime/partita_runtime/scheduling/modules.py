"""One module as the core sees it: who waits, how many arrive, and when to look at it next."""

from collections import Counter

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.queues.arrival_rate import ArrivalRate
from partita_runtime.scheduling.queues.deadline_queue import DeadlineQueue
from partita_runtime.scheduling.workers.free_index import NEVER


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
    """One module: its queue, its pipelines, and what the policy found when it last looked."""

    __slots__ = (
        "blocked",
        "blocked_until",
        "counters",
        "due",
        "early",
        "foreseen",
        "name",
        "order",
        "pipelines",
        "queue",
        "rate",
        "waiting",
    )

    def __init__(self, name: str, order: int, pipelines: tuple[PipelineState, ...]) -> None:
        self.name = name
        self.order = order
        """Its place in the plan, which decides between equals."""
        self.pipelines = pipelines
        self.queue = DeadlineQueue()
        self.rate = ArrivalRate()
        self.counters = ModuleCounters()
        self.due = NEVER
        """When to look at it next; NEVER if nothing waits."""
        self.blocked = False
        """Whether no path was free when it was last looked at."""
        self.blocked_until = 0
        """Until when no path was free when it was last looked at."""
        self.foreseen: PipelineState | None = None
        """The pipeline that its next batch was meant for when it was last looked at; None if nothing is known."""
        self.early = 0
        """Microseconds before its frontrun at which the batch may go if few workers are idle."""
        self.waiting = 0
        """Microseconds that this batch would have waited between its stages."""

    @property
    def minds_others(self) -> bool:
        """Whether it may be due at another time because a batch ends earlier or later than reserved.

        Not if it has one stage only and waits for more requests: a worker is free for it as it is.
        """
        foreseen = self.foreseen
        return foreseen is None or self.blocked or len(self.pipelines) > 1 or len(foreseen.stages) > 1

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
        eligible = self.eligible()
        return min([pipeline.total[0] for pipeline in eligible or self.pipelines])

    def eligible(self) -> list[PipelineState]:
        """The pipelines that have a worker on every stage."""
        return [pipeline for pipeline in self.pipelines if pipeline.eligible]


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
