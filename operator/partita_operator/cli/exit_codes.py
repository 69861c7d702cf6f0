"""The exit codes of `partita`."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; click uses 2 for wrong flags, too."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NO_PLAN = 3
    MISSED = 4

    @classmethod
    def epilog(cls) -> str:
        """The table of codes, for --help."""
        return (
            "Exit codes: 0 success; 1 failure; 2 wrong usage or manifest; 3 no plan is possible; "
            "4 the SLO was missed, or a check found a difference."
        )
