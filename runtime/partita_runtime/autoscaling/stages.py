"""What the autoscaler is told of the stages of a plan, and what it says of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StageTarget:
    """One stage of a plan and how many replicas it should have now."""

    module: str
    pipeline: str
    stage: int
    replicas: int


class MeasuredStage(Protocol):
    """What was measured of one stage over the last window."""

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
        """Replicas that take batches."""

    @property
    def idle_fraction(self) -> float:
        """Share of the ready replicas' time without work (Symphony's f)."""

    @property
    def bad_rate(self) -> float:
        """Share of the module's requests that were dropped or late (Symphony's r)."""


class MeasuredPlan(Protocol):
    """What was measured of the plan in force over the last window."""

    @property
    def plan(self) -> str | None:
        """Its name; None if there is none."""

    @property
    def stages(self) -> Sequence[MeasuredStage]:
        """Its stages, in any order."""

    @property
    def held(self) -> int:
        """Requests that wait for replicas; those that have given up count for a moment longer."""

    @property
    def idle_seconds(self) -> float:
        """For how long no request has been there."""
