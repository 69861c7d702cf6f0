"""Content digests: the same content gives the same key, on every machine and in every run."""

import hashlib
import json
from typing import Any, Final

from pydantic import BaseModel

CONTENT_PATTERN: Final = r"^[0-9a-f]{40}([0-9a-f]{24})?$"
"""What a model was loaded from: a commit, or a SHA-256 digest."""


def canonical_json(content: Any) -> str:
    """`content` (a model or plain JSON data) as JSON with sorted keys and no spaces."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(content: Any, length: int = 16) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `canonical_json(content)`."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:length]
