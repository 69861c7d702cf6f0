"""Rules between the fields of a resource, each written once for the API server (CEL) and pydantic, with one message.

`SpecModel` checks the Python side when a manifest is read; `crd_schema` writes the CEL side into the CRDs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rule:
    """One rule between fields of a model; CEL and Python refuse the same documents with the same message."""

    message: str
    """What is wrong and what to change; field names as in YAML."""
    holds: Callable[[Any], bool]
    """Whether an instance of the model keeps the rule."""
    cel: str | None
    """The same in CEL. None where CEL cannot express it, such as the comparison of quantities."""


@dataclass(frozen=True)
class TransitionRule:
    """A rule between the old and the new state of an object, which the API server checks on updates."""

    message: str
    allows: Callable[[Any, Any], bool]
    """Whether the change from the first to the second instance is allowed."""
    cel: str
    """The same in CEL, with `oldSelf` for the old state."""
