"""Why a request is not answered. Independent of the protocol: `ingress.refusals` turns it into a status."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from partita_runtime.serving.telemetry.signals import Outcome


class UnservedReason(Enum):
    """Why a request is not answered."""

    TOO_LATE = auto()
    """It cannot meet its deadline any more."""
    OVERLOAD = auto()
    """There are more requests than can be answered in time, or held."""
    NO_REPLICAS = auto()
    """A module has no replicas."""
    UNAVAILABLE = auto()
    """A replica or the scheduler was lost, or the session has changed; the client may try again."""
    NO_ANSWER = auto()
    """No answer was made long after the deadline."""
    BROKEN = auto()
    """A model or a function failed, or its answer does not fit."""
    REFUSED = auto()
    """A function refuses what the client has sent."""


_OUTCOMES: Final[Mapping[UnservedReason, Outcome]] = {
    UnservedReason.TOO_LATE: Outcome.TOO_LATE,
    UnservedReason.OVERLOAD: Outcome.OVERLOAD,
    UnservedReason.NO_REPLICAS: Outcome.NO_WORKERS,
    UnservedReason.UNAVAILABLE: Outcome.FAILED,
    UnservedReason.NO_ANSWER: Outcome.FAILED,
    UnservedReason.BROKEN: Outcome.FAILED,
    UnservedReason.REFUSED: Outcome.REFUSED,
}


class UnservedError(Exception):
    """A pending request is not answered; the message says why."""

    def __init__(self, reason: UnservedReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def outcome(self) -> Outcome:
        """How the request is counted."""
        return _OUTCOMES[self.reason]
