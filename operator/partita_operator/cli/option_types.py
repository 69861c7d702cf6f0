"""Types of options: numbers within bounds."""

from math import isnan
from typing import Any, Final

import click

MAX_SECONDS: Final = 10_000_000
"""The longest duration that an option accepts, about 115 days."""
MAX_SEED: Final = 2**63 - 1


class Number(click.FloatRange):
    """A float from `min` to `max`. Unlike click's own range, it refuses nan."""

    def __init__(self, min: float, max: float, *, max_open: bool = False) -> None:
        super().__init__(min, max, max_open=max_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises BadParameter."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


SEED: Final = click.IntRange(0, MAX_SEED)
"""The seed of a random number generator."""
SECONDS: Final = Number(0.1, MAX_SECONDS)
"""A duration in seconds."""
