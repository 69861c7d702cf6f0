"""What a module runs after: an edge of the graph, from its upstream end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class After:
    """A module whose answers go to the next one: which of them, how many calls each makes, and as which inputs.

    The fields are those of an edge of the manifest; None leaves one out.

    >>> After("classifier", when="outputs.label[0] == 2", share="20%").when
    'outputs.label[0] == 2'
    """

    module: str
    """The upstream module."""
    fan_out: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """How many calls one answer makes, on average and at most: `{"mean": 1.5, "max": 4}`."""
    when: str | None = field(default=None, kw_only=True)
    """The answers that are sent on, as an expression over the outputs; None: all of them."""
    share: str | None = field(default=None, kw_only=True)
    """About how many of the answers these are, such as "20%"."""
    map: Mapping[str, str] | None = field(default=None, kw_only=True)
    """The upstream output for each input; None: the first output is the input."""
