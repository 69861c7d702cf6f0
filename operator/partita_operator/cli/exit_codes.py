"""The exit codes of `partita`."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes; click uses 2 for wrong flags, too."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NO_PLAN = 3
    MISSED = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it means, in a few words."""
        return _MEANINGS[self]

    @classmethod
    def epilog(cls) -> str:
        """The table of codes, for --help."""
        return f"Exit codes: {'; '.join(f'{code.value} {code.meaning}' for code in cls)}."


_MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "failure, or something that does not work was found",
    ExitCode.BAD_INPUT: "wrong usage, file or manifest",
    ExitCode.NO_PLAN: "no plan is possible",
    ExitCode.MISSED: "the SLO was missed, or a comparison found a difference",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
