"""What a demonstration gave, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_runtime.load.report import LoadReport
from partita_runtime.serving.telemetry.signals import SessionSignals


@dataclass(frozen=True)
class ConditionChange:
    """A condition that changed, as seen from outside."""

    at_s: float
    """Seconds since the manifests were applied."""
    object: str
    """Kind and name."""
    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class PhaseResult:
    """A stretch of load."""

    name: str
    start_s: float
    """Seconds since the load began."""
    rate: float
    """Requests per second that were asked for."""
    report: LoadReport


@dataclass(frozen=True)
class SignalSample:
    """One look at the session under load."""

    at_s: float
    """Seconds since the load began."""
    signals: SessionSignals
    desired: Mapping[str, int]
    """Replicas that the autoscaler wants, by stage: module/pipeline/number."""
    recommended: str
    """What the autoscaler last wanted, and why."""


@dataclass(frozen=True)
class Verification:
    """How far the session's answers are from those of the whole models."""

    requests: int
    values: int
    """Numbers that were compared."""
    largest_error: float
    """Largest difference, as a share of the largest magnitude in its tensor."""
    tolerance: float
    differences: tuple[str, ...]
    """What does not agree, in sentences; empty if all does."""

    @property
    def agrees(self) -> bool:
        """Whether every answer is that of the whole models, within the tolerance."""
        return not self.differences


@dataclass(frozen=True)
class DemoResult:
    """Everything that the report shows."""

    started_at: str
    """RFC 3339."""
    machine: str
    """What it ran on, for people."""
    emulated: bool
    """Whether executions only took time."""
    session: InferenceSession
    plan: PipelinePlan
    pools: tuple[GPUPool, ...]
    ready_after_s: float
    """Seconds from the manifests to a session that serves."""
    load_after_s: float
    """Seconds from the manifests to the first request of the load."""
    timeline: tuple[ConditionChange, ...]
    phases: tuple[PhaseResult, ...]
    samples: tuple[SignalSample, ...]
    verification: Verification | None
    """None where answers mean nothing."""

    def to_json(self) -> bytes:
        """The result as a JSON object with the names of the fields."""
        return TypeAdapter(DemoResult).dump_json(self, indent=2, by_alias=True)
