"""A session with its pools and plans at one moment, and what changed since another. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from partita_api.conditions import Condition, ConditionType, is_true
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan

REPORTED: Final = (
    ConditionType.PROFILED,
    ConditionType.PLANNED,
    ConditionType.APPROVED,
    ConditionType.ROLLED_OUT,
    ConditionType.READY,
    ConditionType.SLO_MET,
)
"""Reconciling and Stalled repeat these."""
REPORTED_OF_PLANS: Final = (ConditionType.APPROVED,)
"""The session has the others, too."""


@dataclass(frozen=True)
class ConditionChange:
    """A change of a condition."""

    at_s: float
    """Seconds since the manifests were applied."""
    object: str
    """Kind and name."""
    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class SessionSnapshot:
    """A session, its pools and its plans at one moment."""

    session: InferenceSession
    pools: tuple[GPUPool, ...]
    plans: tuple[PipelinePlan, ...]
    """Those of the session."""

    @property
    def serves(self) -> bool:
        """Whether the session serves with the spec that was applied."""
        status = self.session.status
        return (
            status.observed_generation == self.session.metadata.generation
            and is_true(status.conditions, ConditionType.READY)
            and is_true(status.conditions, ConditionType.ROLLED_OUT)
            and status.url is not None
            and self.current_plan is not None
        )

    @property
    def current_plan(self) -> PipelinePlan | None:
        """The current plan."""
        summary = self.session.status.current_plan
        return next((p for p in self.plans if summary is not None and p.metadata.name == summary.name), None)

    @property
    def obstacle(self) -> str | None:
        """Why the session needs a change by a person; None if it does not."""
        status = self.session.status
        if status.observed_generation != self.session.metadata.generation:
            return None
        return next(
            (c.message for c in status.conditions if c.type == ConditionType.STALLED and c.status == "True"), None
        )

    def conditions(self) -> dict[tuple[str, str], Condition]:
        """The reported conditions, by object and type."""
        objects: Iterable[tuple[GPUPool | InferenceSession | PipelinePlan, tuple[ConditionType, ...]]] = (
            *((pool, REPORTED) for pool in self.pools),
            (self.session, REPORTED),
            *((plan, REPORTED_OF_PLANS) for plan in self.plans),
        )
        return {
            (f"{item.kind} {item.metadata.name}", c.type): c
            for item, types in objects
            for c in item.status.conditions
            if c.type in types
        }


def changes(
    before: Mapping[tuple[str, str], Condition], after: Mapping[tuple[str, str], Condition], at_s: float
) -> tuple[ConditionChange, ...]:
    """What is new in `after`, in the usual order of conditions."""
    new = [
        ConditionChange(at_s, name, type, str(c.status), c.reason, c.message)
        for (name, type), c in after.items()
        if (name, type) not in before or _content(before[name, type]) != _content(c)
    ]
    order = {str(type): i for i, type in enumerate(REPORTED)}
    return tuple(sorted(new, key=lambda change: order[change.type]))


def _content(condition: Condition) -> tuple[str, str, str]:
    return str(condition.status), condition.reason, condition.message
