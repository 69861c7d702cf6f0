"""The input and output of the autoscaler: measured stages, and target replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StageTarget:
    """One stage of a plan with its target number of replicas."""

    module: str
    pipeline: str
    stage: int
    replicas: int


class MeasuredStage(Protocol):
    """The measurements of one stage over the last window."""

    @property
    def module(self) -> str:
        """The module."""

    @property
    def pipeline(self) -> str:
        """The pipeline."""

    @property
    def stage(self) -> int:
        """Position in the pipeline, from 0."""

    @property
    def ready(self) -> int:
        """Replicas that accept batches."""

    @property
    def idle_fraction(self) -> float:
        """Share of the ready replicas' time without a batch (Symphony's f)."""

    @property
    def bad_rate(self) -> float:
        """Share of the module's requests that were dropped or late (Symphony's r)."""


class MeasuredPlan(Protocol):
    """The measurements of the current plan over the last window."""

    @property
    def plan(self) -> str | None:
        """Its name; None if there is no current plan."""

    @property
    def stages(self) -> Sequence[MeasuredStage]:
        """Its stages, in any order."""

    @property
    def held(self) -> int:
        """Requests that wait for replicas, including those that gave up a few seconds ago."""

    @property
    def idle_seconds(self) -> float:
        """Seconds without any request."""
