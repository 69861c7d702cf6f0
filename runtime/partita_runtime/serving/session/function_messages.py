"""The messages between the frontend and the processes of functions: a length and a pickle.

They never come from a network: the socket is one end of a pair that the frontend made.
"""

import pickle
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple


class FunctionCall(NamedTuple):
    """A call of a function."""

    entrypoint: str
    kwargs: Mapping[str, Any]
    request: Mapping[str, Any]
    """The request's tensors by name."""
    upstream: Mapping[str, Sequence[Any]]
    """The upstream answers by module."""


class CallOutcome(NamedTuple):
    """The result of a call."""

    answer: Mapping[str, Any] | None
    """Arrays by name; None if the call failed."""
    problem: str = ""
    """Why it failed, as text: not all exceptions can be pickled."""


LENGTH: Final = struct.Struct("<Q")


def frame(message: object) -> bytes:
    """A message with its length. Raises the errors of pickle for a message that cannot be pickled."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content
