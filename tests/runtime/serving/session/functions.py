"""CPU functions of the sessions under test, one for each behaviour."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partita_runtime.functions import RequestRefusedError

Arrays = Mapping[str, np.ndarray]
Upstream = Mapping[str, Sequence[np.ndarray]]


def crop(request: Arrays, upstream: Upstream, to: str = "classifier") -> dict[str, np.ndarray]:
    """The number of crops is the first element of the request; the k-th crop is filled with k + 1."""
    assert [output.shape for output in upstream["detector"]] == [(2,)]
    count = int(request["input"].flat[0])
    crops = [np.full((2, 2), k + 1, np.float32) for k in range(count)]
    return {to: np.stack(crops) if crops else np.empty((0, 2, 2), np.float32)}


def double(request: Arrays, upstream: Upstream) -> dict[str, np.ndarray]:
    """A sink: twice the request, and the number of tensors upstream."""
    (given, *_) = request.values()
    return {"doubled": given * 2, "seen": np.array([sum(map(len, upstream.values()))], np.int64)}


def lines(request: Arrays, _upstream: Upstream, to: str = "read") -> dict[str, list[np.ndarray]]:
    """A line of each width that the request has, 0 for none; the k-th line is filled with k + 1."""
    widths = [int(width) for width in request["input"].ravel() if width]
    return {to: [np.full((2, width), k + 1, np.float32) for k, width in enumerate(widths)]}


def paragraph(_request: Arrays, upstream: Upstream, module: str = "read") -> dict[str, np.ndarray]:
    """A join of lines: the width of each, and all of them one after the other."""
    read = upstream[module][0]
    assert isinstance(read, list)
    text = np.concatenate([line.ravel() for line in read]) if read else np.empty(0, np.float32)
    return {"widths": np.array([line.shape[-1] for line in read], np.int64), "text": text}


def width(_request: Arrays, upstream: Upstream) -> dict[str, np.ndarray]:
    """The width of one line."""
    (tensors,) = upstream.values()
    return {"width": np.array(tensors[0].shape[-1], np.int64)}


def odd(request: Arrays, _upstream: Upstream) -> dict[str, np.ndarray]:
    """The first element of the request, refused if it is even."""
    number = int(request["input"].flat[0])
    if number % 2 == 0:
        raise RequestRefusedError(f"{number} is even; send an odd number")
    return {"number": np.array([number], np.int64)}


def join(request: Arrays, upstream: Upstream) -> dict[str, np.ndarray]:
    """A join: the number of answers of each upstream module, by name."""
    assert request
    return {name: np.array([len(outputs[0])], np.int64) for name, outputs in upstream.items()}


def lengths(request: Arrays, _upstream: Upstream, of: str = "input") -> dict[str, np.ndarray]:
    """The lengths of the request's two texts, for a model whose samples are two numbers."""
    texts = request[of].tolist()
    assert {type(text) for text in texts} == {bytes}
    return {"model": np.array([[len(text) for text in texts]], np.float32)}


def values_and_shift(request: Arrays, _upstream: Upstream, to: str = "late") -> dict[str, Any]:
    """Two samples of a model of two inputs, for each text of the request."""
    (text,) = request["input"].tolist()
    values = np.full((2, 4), len(text), np.float32)
    return {to: {"values": values, "shift": np.array([[1], [-1]], np.int16)}}


def tokens(request: Arrays, _upstream: Upstream, to: str = "encode", mask_of: int | None = None) -> dict[str, Any]:
    """A sample of a model of ids and mask for each length in the request; the mask may have another length."""
    lengths = [int(length) for length in request["input"] if length]
    masks = [np.ones(length if mask_of is None else mask_of, np.int64) for length in lengths]
    return {to: {"ids": [np.arange(length) + length for length in lengths], "mask": masks}}


def echo(request: Arrays, _upstream: Upstream, of: str = "input") -> dict[str, Any]:
    """A sink: the request's texts, and a sentence for them."""
    texts = request[of].tolist()
    return {"texts": texts, "sentence": f"{len(texts)} texts of {sum(map(len, texts))} bytes"}


def broken(_request: Arrays, _upstream: Upstream) -> dict[str, np.ndarray]:
    """Raises."""
    raise RuntimeError("no such camera")


def crash(_request: Arrays, _upstream: Upstream) -> dict[str, np.ndarray]:
    """Ends its process."""
    os._exit(3)


def misshapen(_request: Arrays, _upstream: Upstream) -> dict[str, np.ndarray]:
    """Answers with crops of another size than the classifier's input."""
    return {"classifier": np.zeros((1, 3, 3), np.float32)}


def slow(_request: Arrays, _upstream: Upstream, seconds: float = 0.2) -> dict[str, np.ndarray]:
    """A slow function."""
    time.sleep(seconds)
    return {"done": np.zeros(1, np.float32)}


def nothing(_request: Arrays, _upstream: Upstream) -> Any:
    """Returns something that is not a mapping."""
    return None


def numbered(request: Arrays, _upstream: Upstream, directory: str) -> dict[str, np.ndarray]:
    """Records that it runs, waits while a file `hold` exists, and follows the file with the request's number."""
    number = int(request["input"].flat[0])
    with (Path(directory) / "began").open("a") as began:
        began.write(f"{number}\n")
    while (Path(directory) / "hold").exists():
        time.sleep(0.005)
    _obey(Path(directory) / str(number))
    return {"number": np.array(number)}


def _obey(order: Path) -> None:
    if not order.exists():
        return
    if order.read_text() == "crash":
        os._exit(3)
    if order.read_text() == "refuse":
        raise RequestRefusedError("not this one")
    raise RuntimeError(order.read_text())


async def awaited(request: Arrays, _upstream: Upstream, directory: str) -> dict[str, np.ndarray]:
    """As `numbered`, on an event loop: waits for the file `hold`, and records whether it was cancelled.

    With the file `block` it holds the event loop, too.
    """
    number = int(request["input"].flat[0])
    with (Path(directory) / "began").open("a") as began:
        began.write(f"{number}\n")
    try:
        while (Path(directory) / "hold").exists():
            if (Path(directory) / "block").exists():
                time.sleep(0.005)  # noqa: ASYNC251
            else:
                await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        (Path(directory) / f"cancelled-{number}").touch()
        raise
    _obey(Path(directory) / str(number))
    return {"number": np.array(number)}
