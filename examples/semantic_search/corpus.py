"""The passages that are searched: one in each line of `corpus.txt`, with their vectors in `corpus.npz`.

To search others, write them into `corpus.txt`, then: python -m semantic_search.corpus
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from semantic_search.texts import LONGEST, Array, windows

FOLDER: Final = Path(__file__).parent


class CorpusError(Exception):
    """The files of a corpus do not fit together; the message says what to do."""


@dataclass(frozen=True)
class Corpus:
    """Passages and what the encoder makes of them."""

    passages: tuple[str, ...]
    pieces: tuple[Array, ...]
    """The numbers of their word pieces."""
    vectors: Array
    """`[passages, 384]`, each of length 1."""


def read_corpus(folder: Path = FOLDER) -> Corpus:
    """The corpus in a folder. Raises CorpusError."""
    found = _passages(folder)
    vectors = folder / "corpus.npz"
    if not vectors.exists():
        raise CorpusError(f"there is no {vectors}; run python -m semantic_search.corpus")
    with np.load(vectors) as stored:
        if stored["text"].item() != _digest(folder):
            raise CorpusError(f"{vectors} is of another corpus.txt; run python -m semantic_search.corpus")
        return Corpus(tuple(found), tuple(found.values()), stored["vectors"])


def write_vectors(folder: Path = FOLDER) -> None:
    """Encode the passages. Raises CorpusError."""
    import torch

    from semantic_search.models import encoder

    passages, model = _passages(folder), encoder().eval()
    with torch.no_grad():
        vectors = [model(torch.from_numpy(pieces)[None])["vector"][0] for pieces in passages.values()]
    np.savez(folder / "corpus.npz", vectors=torch.stack(vectors).numpy(), text=_digest(folder))


def _passages(folder: Path) -> Mapping[str, Array]:
    """The word pieces of each passage."""
    found = {}
    for number, line in enumerate(_text(folder).splitlines(), start=1):
        parts = windows(line)
        if len(parts) != 1:
            raise CorpusError(
                f"line {number} of corpus.txt has {'too many' if parts else 'no'} word pieces, of which a passage has "
                f"1 to {LONGEST - 2}; {'split' if parts else 'remove'} it"
            )
        (found[line],) = parts
    return found


def _text(folder: Path) -> str:
    return (folder / "corpus.txt").read_text()


def _digest(folder: Path) -> str:
    return hashlib.sha256(_text(folder).encode()).hexdigest()


if __name__ == "__main__":
    write_vectors()
