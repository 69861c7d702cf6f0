"""Programs in the background, as messages name them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partita_devtools.machine.commands import last_lines

_LINES = 8


@dataclass(frozen=True)
class LoggedProgram:
    """A program with the file of its output."""

    name: str
    log: Path

    def problem(self, what: str) -> str:
        """The message that the program did `what`, such as `ended`, with the end of its log."""
        return "\n  ".join([f"{self.name} {what}; the end of its log {self.log}:", *last_lines(self.log, _LINES)])
