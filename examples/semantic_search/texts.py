"""Texts as numbers of word pieces, and how alike texts are by the vectors of the encoder."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from semantic_search.models import packaged

Array = NDArray[Any]

LONGEST: Final = 256
"""The most word pieces for which the encoder was made, with [CLS] in front and [SEP] at the end."""
START, END = 101, 102
"""The numbers of [CLS] and [SEP]."""


def windows(text: str) -> list[Array]:
    """The word pieces of a text in parts of at most LONGEST, each with [CLS] and [SEP]; none if there is no piece."""
    pieces = _tokenizer().encode(text, add_special_tokens=False).ids
    step = LONGEST - 2
    return [np.array([START, *pieces[i : i + step], END], np.int64) for i in range(0, len(pieces), step)]


def text_vector(vectors: Sequence[Array], lengths: Sequence[int]) -> Array:
    """The vector of a text whose windows have these vectors and lengths: their mean by length, of length 1."""
    mean = np.average(np.asarray(vectors, np.float64), axis=0, weights=lengths)
    return (mean / np.linalg.norm(mean)).astype(np.float32)


def late_interaction(text: Sequence[Array], passage: Array) -> float:
    """How alike a text's windows `[pieces, 384]` and a passage are by their word pieces, from -1 to 1.

    The mean over the pieces of the text of each one's largest cosine with a piece of the passage: the score of ColBERT,
    divided by the number of pieces. [CLS], [SEP] and padding do not count.
    """
    of_text = np.concatenate([_pieces(window) for window in text])
    return float((of_text @ _pieces(passage).T).max(axis=1).mean())


def _pieces(vectors: Array) -> Array:
    """The vectors without those of [CLS], [SEP] and padding, which are 0."""
    return vectors[vectors.any(axis=1)][1:-1]


@cache
def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(packaged() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a "[PAD]" in a text is three characters and a word
    return tokenizer
