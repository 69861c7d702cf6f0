"""The CPU steps of the application: word pieces, the nearest passages, and their order."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from partita_runtime.functions import RequestRefusedError
from semantic_search.corpus import read_corpus
from semantic_search.texts import Array, late_interaction, text_vector, windows

Upstream = Mapping[str, Sequence[Sequence[Array]]]

CORPUS: Final = read_corpus()
MOST_WINDOWS: Final = 16
"""The most parts of a text: the largest fan-out."""
MOST_BYTES: Final = 100_000


class TextError(RequestRefusedError):
    """A text that cannot be searched for; the message says what is expected."""


def tokens(request: Mapping[str, Array], _upstream: Upstream) -> dict[str, Any]:
    """Cut a text into parts for `encoder`; the others get the number of word pieces of each part.

    `request["input"]` is the text `[1]` in UTF-8. Raises TextError.
    """
    encoded = request["input"].item()
    if len(encoded) > MOST_BYTES:
        raise TextError(f"the text has {len(encoded):,} bytes; send at most {MOST_BYTES:,}")
    try:
        parts = windows(encoded.decode())
    except UnicodeDecodeError:
        raise TextError("this is not a text; send UTF-8") from None
    if not parts:
        raise TextError("there is no word in the text; send at least one")
    if len(parts) > MOST_WINDOWS:
        raise TextError(f"the text is {len(parts)} times as long as the encoder's longest; at most {MOST_WINDOWS} work")
    lengths = np.array([len(part) for part in parts])
    return {"encoder": parts, "neighbours": lengths, "ranking": lengths}


def neighbours(_request: Mapping[str, Array], upstream: Upstream, *, count: int) -> dict[str, Any]:
    """Find the `count` passages whose vectors are nearest to that of the text.

    `reader` gets their word pieces, `ranking` their numbers, from the nearest on.
    """
    nearest = np.argsort(-_similarities(upstream), kind="stable")[:count]
    return {"reader": [CORPUS.pieces[i] for i in nearest], "ranking": nearest}


def ranking(_request: Mapping[str, Array], upstream: Upstream) -> dict[str, Any]:
    """Order the nearest passages by their word pieces.

    `numbers` are those of the passages in the corpus, from 0; `scores` are of late interaction, `similarities` the
    cosines of the vectors, `vector` is that of the text.
    """
    nearest = upstream["neighbours"][0][0]
    _, of_text = upstream["encoder"]
    _, of_passages = upstream["reader"]
    scores = np.array([late_interaction(of_text, passage) for passage in of_passages], np.float32)
    order = np.argsort(-scores, kind="stable")
    best = nearest[order]
    return {
        "passages": [CORPUS.passages[i] for i in best],
        "numbers": best,
        "scores": scores[order],
        "similarities": _similarities(upstream)[best],
        "vector": _vector(upstream),
    }


def _vector(upstream: Upstream) -> Array:
    return text_vector(upstream["encoder"][0], upstream["tokens"][0][0])


def _similarities(upstream: Upstream) -> Array:
    similarities: Array = CORPUS.vectors @ _vector(upstream)
    return similarities
