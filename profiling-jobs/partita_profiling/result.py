"""The result of a profiling run: the last line of its log.

So a run needs no Kubernetes credentials, and the operator needs only the log. A log is written by code of users in
part: nothing in it is taken for a result that is too long, or not within the bounds of a Profile. Imports no torch.
"""

from typing import Final, Self

from pydantic import Field, ValidationError

from partita_api.digests import canonical_json
from partita_api.meta import StatusModel
from partita_api.profile import Profile

RESULT_PREFIX: Final = "PARTITA-PROFILE "
ERROR_PREFIX: Final = "PARTITA-PROFILE-ERROR "
REQUEST_VARIABLE: Final = "PARTITA_PROFILE_REQUEST"
"""Environment variable that holds the ProfileRequest as JSON."""

LOG_TAIL_LINES: Final = 5
MOST_RESULT_BYTES: Final = 256 * 1024
"""The longest result line. A profile of 20 blocks, 8 divisors and 7 batch sizes has less than 64 KiB."""
_MOST_MESSAGE_CHARACTERS: Final = 4096


class ProfileFailure(StatusModel):
    """Why a run has no profile."""

    reason: str = Field(max_length=64)
    """A ModelErrorReason, BadRequest, Unexpected, or (the run ended without a result line) NoResult."""
    message: str = Field(max_length=_MOST_MESSAGE_CHARACTERS)
    """What is wrong, and what to change."""

    @classmethod
    def of(cls, reason: str, message: str) -> Self:
        """The failure with the end of a message that is too long."""
        return cls(reason=reason, message=message[-_MOST_MESSAGE_CHARACTERS:])


def result_line(result: Profile | ProfileFailure) -> str:
    """`result` as one line of a log."""
    prefix = RESULT_PREFIX if isinstance(result, Profile) else ERROR_PREFIX
    return prefix + canonical_json(result)


def parse_result(log: str) -> Profile | ProfileFailure:
    """The result in a log: the last line that begins with one of the prefixes.

    A log without a readable result gives a ProfileFailure with reason NoResult, and what is wrong.
    """
    lines = log.split("\n")  # not splitlines(), which also divides a line of a model's output at other characters
    for line in reversed(lines):
        for prefix, kind in ((RESULT_PREFIX, Profile), (ERROR_PREFIX, ProfileFailure)):
            if line.startswith(prefix):
                return _parsed(kind, line.removeprefix(prefix))
    tail = "\n".join([line for line in lines if line][-LOG_TAIL_LINES:])
    return ProfileFailure.of(
        "NoResult",
        f"the run ended without a result (out of memory, or stopped from outside?); its log ends: {tail}"
        if tail
        else "the run ended without a log (could its container start?)",
    )


def _parsed(kind: type[Profile] | type[ProfileFailure], document: str) -> Profile | ProfileFailure:
    if len(document) > MOST_RESULT_BYTES:
        return ProfileFailure.of("NoResult", f"the run's result is longer than {MOST_RESULT_BYTES} bytes")
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return ProfileFailure.of(
            "NoResult",
            "the run's result is not valid; check that its image has the operator's version; "
            f"{error.error_count()} errors, first: {where + ': ' if where else ''}{first['msg']}",
        )
