"""What a dispatched batch still needs. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from partita_runtime.scheduling.events import Dispatch, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan

Executions = Mapping[StageRef, Sequence[int]]
"""Execution times of each stage by the profile (microseconds), by batch size, from 1."""


def executions_of(plan: SchedulingPlan) -> Executions:
    """The execution times of a plan's stages."""
    return {ref: stage.latency_micros for ref, stage in plan.stages()}


def remaining_executions(dispatch: Dispatch, stages_done: int, executions: Executions) -> Iterator[tuple[str, int]]:
    """The executions of a batch that are left: the worker of each stage, and when it is planned to end."""
    size = len(dispatch.request_ids)
    for stage in range(stages_done, len(dispatch.path)):
        latency = executions[StageRef(dispatch.module, dispatch.pipeline, stage)][size - 1]
        yield dispatch.path[stage], dispatch.starts[stage] + latency
