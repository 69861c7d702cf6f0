"""The result of a check, and its level."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from partita_operator.cli.exit_codes import ExitCode


class Level(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, but worse or slower than it could."""
    ERROR = "error"
    """Something does not work."""
    SKIPPED = "skipped"
    """Not checked, because it is not installed, not needed or not readable."""


class Area(StrEnum):
    """What a check is about."""

    MACHINE = "machine"
    DEVELOPMENT = "development"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Unknown:
    """A fact that cannot be read."""

    reason: str
    """Why, as part of a sentence."""


@dataclass(frozen=True)
class CheckFinding:
    """The result of one check."""

    area: Area
    check: str
    """Name of the check."""
    level: Level
    message: str
    """One sentence: the state."""
    action: str = ""
    """One sentence: what to do; empty if there is nothing to do."""
    command: str = ""
    """A shell command that does it, or shows more; empty if there is none."""


def exit_code(findings: Iterable[CheckFinding]) -> ExitCode:
    """FAILED if a check found an error, else OK: warnings do not fail."""
    return ExitCode.FAILED if any(finding.level is Level.ERROR for finding in findings) else ExitCode.OK


def findings_data(findings: Iterable[CheckFinding]) -> dict[str, Any]:
    """The findings for programs, with the number of findings of each level."""
    found = list(findings)
    return {
        "summary": {str(level): sum(finding.level is level for finding in found) for level in Level},
        "findings": [asdict(finding) for finding in found],
    }
