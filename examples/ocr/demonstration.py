"""What `partita demo` sends to the session `ocr`, and the pictures whose text it shows.

python -m ocr.demonstration FILE    # writes requests for `partita load --payload FILE`
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rapidocr import RapidOCR

from ocr.pictures import LAYOUTS, pictures, rendered

PACKAGE: Final = "rapidocr"
"""The package whose own text the served one is compared with."""
MEMORY_GIB: Final = 9.0
"""Memory that must be free for the demonstration, with the API server, Ray and the operator."""
SHOWN: Final = ("note", "screen", "receipt", "night", "tilted", "noisy")
"""Kinds of pictures that are sent and shown: two cores read several of them in a second."""


def requests(count: int, seed: int) -> dict[str, NDArray[Any]]:
    """The inputs of `count` requests, by name; the same for the same seed."""
    return {"input": pictures(count, seed, SHOWN)}


def shown() -> Mapping[str, tuple[bytes, Sequence[str]]]:
    """Pictures by name: the PNG file, and the lines of text in it in reading order."""
    made = {name: rendered(LAYOUTS[name], seed) for seed, name in enumerate(SHOWN)}
    return {name: (picture.png, picture.lines) for name, picture in made.items()}


def request(png: bytes) -> dict[str, NDArray[Any]]:
    """The input of a request with this picture, by name."""
    return {"input": np.array([[png]], np.object_)}


def served_lines(answer: Mapping[str, NDArray[Any]]) -> Sequence[str]:
    """The lines of text in the session's answer."""
    return [line.decode() for line in answer["text.lines"][0]]


def package_lines(png: bytes) -> Sequence[str]:
    """The lines of text that the package reads by its own loop."""
    return tuple(_engine()(png).txts or ())


@cache
def _engine() -> RapidOCR:
    return RapidOCR(params={"Global.log_level": "critical"})


def write_requests(path: Path, count: int = 12) -> None:
    """Write `count` requests, as `partita load` reads them."""
    np.savez(path, input=requests(count, seed=0)["input"].astype(np.bytes_))


if __name__ == "__main__":
    write_requests(Path(sys.argv[1]))
