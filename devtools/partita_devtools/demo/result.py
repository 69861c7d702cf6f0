"""The result of a demonstration, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_devtools.demo.simulation import SimulatedPlan
from partita_devtools.sessions.snapshot import ConditionChange
from partita_runtime.load.report import LoadReport
from partita_runtime.quality.metrics import distance
from partita_runtime.serving.telemetry.signals import SessionSignals


@dataclass(frozen=True)
class PhaseResult:
    """A phase of the load and its report."""

    name: str
    start_s: float
    """Seconds since the load began."""
    rate: float
    """Requests per second that were sent."""
    report: LoadReport
    busy: float
    """Share of the machine that was busy."""


@dataclass(frozen=True)
class SignalSample:
    """One observation of the session under load."""

    at_s: float
    """Seconds since the load began."""
    signals: SessionSignals
    desired: Mapping[str, int]
    """Replicas that the autoscaler requests, by stage: module/pipeline/number."""
    recommended: str
    """The autoscaler's last recommendation and its reason."""


@dataclass(frozen=True)
class Verification:
    """The difference between the session's answers and those of the whole models."""

    requests: int
    values: int
    """Numbers that were compared."""
    largest_error: float
    """Largest difference, as a share of the largest magnitude in its tensor; without what rounding explains."""
    tolerance: float
    differences: tuple[str, ...]
    """The differences, in sentences; empty if there are none."""
    explained: tuple[str, ...] = ()
    """Differences beyond the tolerance that rounding at the plan's cuts explains, in sentences."""

    @property
    def agrees(self) -> bool:
        """Whether every answer equals that of the whole models, within the tolerance or by what rounding explains."""
        return not self.differences


@dataclass(frozen=True)
class ReadPicture:
    """A picture, and the text that was read in it."""

    name: str
    png: bytes
    package: str
    """The package that has read it beside the session."""
    written: tuple[str, ...]
    """The lines of text in the picture."""
    served: tuple[str, ...]
    """The lines that the session has read."""
    own: tuple[str, ...]
    """The lines that the package has read."""

    @property
    def characters(self) -> int:
        """Characters of the package's text; the end of a line counts as one."""
        return len("\n".join(self.own))

    @property
    def different(self) -> int:
        """Fewest characters to insert, delete or replace to make the served text of the package's."""
        return distance("\n".join(self.served), "\n".join(self.own))


@dataclass(frozen=True)
class DemoResult:
    """Everything that the report shows."""

    started_at: str
    """RFC 3339."""
    machine: str
    """Description of the machine."""
    example: str
    """Folder of the example, as given."""
    emulated: bool
    """Whether executions were emulated."""
    session: InferenceSession
    plan: PipelinePlan
    pools: tuple[GPUPool, ...]
    first_answer_after_s: float
    """Seconds from the start of the command to the first answered request."""
    ready_after_s: float
    """Seconds from the manifests to a session that serves."""
    load_after_s: float
    """Seconds from the manifests to the first request of the load."""
    timeline: tuple[ConditionChange, ...]
    phases: tuple[PhaseResult, ...]
    samples: tuple[SignalSample, ...]
    verification: Verification | None
    """None if executions were emulated."""
    simulated: SimulatedPlan | None
    """None if there are no profiles to simulate with."""
    pictures: tuple[ReadPicture, ...] = ()
    """Empty if the example reads no text."""

    def to_json(self) -> bytes:
        """The result as a JSON object with the names of the fields, without the files of pictures."""
        left_out = {"pictures": {"__all__": {"png"}}}
        return TypeAdapter(DemoResult).dump_json(self, indent=2, by_alias=True, exclude=left_out)
