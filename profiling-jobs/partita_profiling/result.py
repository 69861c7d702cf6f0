"""The result of a profiling run: the last line of its log.

So a run needs no Kubernetes credentials, and the operator needs only the log. Imports no torch.
"""

from typing import Final

from pydantic import ValidationError

from partita_api.digests import canonical_json
from partita_api.meta import StatusModel
from partita_api.profile import Profile

RESULT_PREFIX: Final = "PARTITA-PROFILE "
ERROR_PREFIX: Final = "PARTITA-PROFILE-ERROR "
REQUEST_VARIABLE: Final = "PARTITA_PROFILE_REQUEST"
"""Environment variable that holds the ProfileRequest as JSON."""

LOG_TAIL_LINES: Final = 5


class ProfileFailure(StatusModel):
    """Why a run has no profile."""

    reason: str
    """A ModelErrorReason, BadRequest, Unexpected, or (the run ended without a result line) NoResult."""
    message: str
    """What is wrong, and what to change."""


def result_line(result: Profile | ProfileFailure) -> str:
    """`result` as one line of a log."""
    prefix = RESULT_PREFIX if isinstance(result, Profile) else ERROR_PREFIX
    return prefix + canonical_json(result)


def parse_result(log: str) -> Profile | ProfileFailure:
    """The result in a log: its last result line; the prefix may be anywhere in the line.

    A log without a result line gives a ProfileFailure with reason NoResult and the end of the log.
    """
    for line in reversed(log.splitlines()):
        for prefix, kind in ((RESULT_PREFIX, Profile), (ERROR_PREFIX, ProfileFailure)):
            _, found, document = line.partition(prefix)
            if found:
                return _parsed(kind, document)
    tail = "\n".join(log.splitlines()[-LOG_TAIL_LINES:])
    return ProfileFailure(
        reason="NoResult",
        message=f"the run ended without a result (out of memory, or stopped from outside?); its log ends: {tail}"
        if tail
        else "the run ended without a log (could its container start?)",
    )


def _parsed(kind: type[Profile] | type[ProfileFailure], document: str) -> Profile | ProfileFailure:
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        return ProfileFailure(
            reason="NoResult",
            message="the run's result cannot be read; check that its image has the operator's version; "
            f"{error.error_count()} errors, first: {error.errors()[0]['msg']}",
        )
