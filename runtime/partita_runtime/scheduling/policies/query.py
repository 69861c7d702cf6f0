"""Queries: the requests of one call that wait at a module, and are executed together."""

from itertools import takewhile

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


def next_query(module: ModuleState, pipelines: list[PipelineState]) -> list[QueuedRequest]:
    """The first request of the queue and those of its call and deadline, at most the largest batch size.

    Calls that arrive at the same time are different queries: a batch of several calls upstream is answered at once.
    """
    first = module.queue[0]
    call = first.call
    if call is None:
        return [first]
    largest = max([pipeline.batch_size for pipeline in pipelines])
    simultaneous = takewhile(lambda request: request.deadline == first.deadline, module.queue)
    return [request for request in simultaneous if request.call == call][:largest]
