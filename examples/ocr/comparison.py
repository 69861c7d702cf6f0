"""The text that the session serves, that of the package rapidocr, and how much they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from rapidocr import RapidOCR

from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer, encode_request

TIMEOUT_S = 120.0


class NotReadError(Exception):
    """A picture was not read; the message says why."""


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
    """The text that the session at `url` reads. Raises NotReadError, with the session's message if it refuses."""
    request = encode_request({"input": np.array([[picture]], np.object_)})
    endpoint = f"{url.rstrip('/')}/v2/models/{url.rstrip('/').rpartition('/')[2]}/infer"
    try:
        answer = client.post(endpoint, content=request.body, headers=dict(request.headers), timeout=TIMEOUT_S)
    except httpx.HTTPError as error:
        raise NotReadError(f"{url} does not answer: {error}") from error
    if not answer.is_success:
        raise NotReadError(f"the session refuses it ({answer.status_code}): {_message(answer)}")
    try:
        tensors = decode_answer(answer.headers, answer.content)
        lines = tuple(line.decode() for line in tensors["text.lines"][0])
        return Served(lines, int(tensors["text.left_out"][0]))
    except (AnswerError, KeyError) as error:
        raise NotReadError(f"{url} is not a session of this example: {error}") from error


def package_text(engine: RapidOCR, path: Path) -> tuple[str, ...]:
    """The text that the package reads. Raises NotReadError."""
    try:
        return tuple(engine(path).txts or ())
    except Exception as error:
        raise NotReadError(f"rapidocr does not read it: {type(error).__name__}: {error}") from error


def distance(a: str, b: str) -> int:
    """Levenshtein's distance."""
    codes = np.array([ord(character) for character in b])
    positions = np.arange(len(b) + 1)
    row = positions
    for i, character in enumerate(a, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(character)))
        row = np.minimum.accumulate(np.concatenate(([i], best)) - positions) + positions
    return int(row[-1])


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
