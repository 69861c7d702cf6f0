"""The text that the session serves, that of the package rapidocr, and how much they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from checks.client import ask
from rapidocr import RapidOCR

from ocr.demonstration import request, served_lines
from partita_runtime.quality.metrics import distance


class NotReadError(Exception):
    """The package has not read a picture; the message says why."""


@dataclass(frozen=True)
class Served:
    """What a session has answered for a picture."""

    lines: tuple[str, ...]
    left_out: int
    """Lines that were found but not read."""


@dataclass(frozen=True)
class Comparison:
    """Two texts of one picture."""

    served: Sequence[str]
    package: Sequence[str]

    @property
    def characters(self) -> int:
        """Characters of the package's text; a new line counts as one."""
        return len("\n".join(self.package))

    @property
    def different(self) -> int:
        """Fewest characters to insert, delete or replace to make one text of the other."""
        return distance("\n".join(self.served), "\n".join(self.package))


def served_text(client: httpx.Client, url: str, picture: bytes) -> Served:
    """The text that the session at `url` reads. Raises NotAnsweredError."""
    answer = ask(client, url, request(picture))
    return Served(tuple(served_lines(answer)), int(answer["text.left_out"][0]))


def package_text(engine: RapidOCR, path: Path) -> tuple[str, ...]:
    """The text that the package reads. Raises NotReadError."""
    try:
        return tuple(engine(path).txts or ())
    except Exception as error:
        raise NotReadError(f"rapidocr does not read it: {type(error).__name__}: {error}") from error
