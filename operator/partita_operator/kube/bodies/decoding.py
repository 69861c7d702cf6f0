"""JSON of the API server, whatever others put into it. Pure.

The API server admits 10,000 levels of nesting. Python's decoder admits fewer, and so do the copies and comparisons that
follow. Nothing that Partita uses has more than some dozen levels, so deeper values are cut.
"""

import json
import re
from typing import Any, Final

from pydantic_core import from_json

MAX_DEPTH: Final = 100
"""Levels that are left of a document that the decoder refuses. It refuses more than 200."""
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def decoded(text: bytes) -> Any:
    """The document; values that are nested too deeply are None. Raises ValueError if it is not JSON."""
    try:
        return from_json(text)
    except ValueError:  # also for what only the standard library accepts
        return json.loads(_cut(text))


def shallow(text: bytes) -> bytes:
    """The same document for another decoder: unchanged, or without values that are nested too deeply."""
    try:
        from_json(text)
    except ValueError:
        return _cut(text)
    return text


def _cut(text: bytes) -> bytes:
    """A text without what is nested more than MAX_DEPTH levels deep."""
    depth, kept, begin = 0, [], 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += [text[begin : token.start()], b"null"]
        elif first in b"]}":
            if depth == MAX_DEPTH + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, text[begin:] if depth <= MAX_DEPTH else b""])
