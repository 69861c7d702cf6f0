"""What the exit codes of `partita` mean to a script."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; 2 is also what a wrong flag gives."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NO_PLAN = 3
    MISSED = 4

    @classmethod
    def epilog(cls) -> str:
        """The table of codes, for --help."""
        return (
            "Exit codes: 0 done; 1 failed; 2 wrong usage or manifest; 3 no plan is possible; "
            "4 ran, but the SLO was missed or a check found a difference."
        )
