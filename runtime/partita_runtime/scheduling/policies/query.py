"""Queries: requests that arrive together, such as the samples of one call, and are executed together."""

from itertools import takewhile

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


def next_query(module: ModuleState, pipelines: list[PipelineState]) -> list[QueuedRequest]:
    """The requests at the front of the queue that arrived at the same time, at most the largest batch size."""
    front = module.queue.front(max([pipeline.batch_size for pipeline in pipelines]))
    return list(takewhile(lambda request: request.arrived == front[0].arrived, front))
