"""The state of one module: its queue, its pipelines, its arrival rate, and when the core evaluates it next."""

from collections import Counter

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.queues.arrival_rate import ArrivalRate
from partita_runtime.scheduling.queues.deadline_queue import DeadlineQueue
from partita_runtime.scheduling.workers.free_index import NEVER


class ModuleCounters:
    """How the requests of one module ended."""

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
    """One module of the current plan."""

    __slots__ = ("counters", "due", "name", "order", "pipelines", "queue", "rate")

    def __init__(self, name: str, order: int, pipelines: tuple[PipelineState, ...]) -> None:
        self.name = name
        self.order = order
        """Its position in the plan: a lower one is preferred among equals."""
        self.pipelines = pipelines
        self.queue = DeadlineQueue()
        self.rate = ArrivalRate()
        self.counters = ModuleCounters()
        self.due = NEVER
        """When the core evaluates it next; NEVER if no evaluation is scheduled."""

    def take_over(self, former: "ModuleState") -> None:
        """Continue with the queue and the counters of the same module in an earlier plan."""
        self.queue = former.queue
        self.rate = former.rate
        self.counters = former.counters
        counters = {pipeline.name: pipeline.counters for pipeline in former.pipelines}
        for pipeline in self.pipelines:
            pipeline.counters = counters.get(pipeline.name, pipeline.counters)

    def least_micros(self) -> int:
        """The shortest time in which one request can be served without waiting."""
        eligible = self.eligible()
        return min([pipeline.total[0] for pipeline in eligible or self.pipelines])

    def eligible(self) -> list[PipelineState]:
        """The pipelines that have a worker on every stage."""
        return [pipeline for pipeline in self.pipelines if pipeline.eligible]


def module_states(plan: SchedulingPlan) -> dict[str, ModuleState]:
    """The modules of a plan by name, without workers or requests."""
    return {
        module.name: ModuleState(
            module.name,
            order,
            tuple(PipelineState(module.name, pipeline, plan.bandwidth) for pipeline in module.pipelines),
        )
        for order, module in enumerate(plan.modules)
    }
