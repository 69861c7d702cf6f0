"""What a session's conditions say while it is waited for."""

from dataclasses import dataclass
from enum import StrEnum

from partita_api.conditions import ConditionType, is_true
from partita_api.inferencesession import InferenceSession


class Phase(StrEnum):
    """How far a session is."""

    READY = "Ready"
    WORKING = "Working"
    STALLED = "Stalled"


@dataclass(frozen=True)
class Step:
    """How far a session is, and why it is not further."""

    phase: Phase
    message: str


def step_of(session: InferenceSession) -> Step:
    """The step by the conditions for the session's present spec; those for an earlier spec do not count."""
    status = session.status
    ready = next((condition for condition in status.conditions if condition.type == ConditionType.READY), None)
    if status.observed_generation < session.metadata.generation or ready is None:
        return Step(
            Phase.WORKING,
            "The operator has not processed the session yet. If this lasts, check that it runs and serves the "
            "namespace.",
        )
    message = f"{ready.reason}: {ready.message}"
    if is_true(status.conditions, ConditionType.READY):
        return Step(Phase.READY, message)
    stalled = is_true(status.conditions, ConditionType.STALLED)
    return Step(Phase.STALLED if stalled else Phase.WORKING, message)
