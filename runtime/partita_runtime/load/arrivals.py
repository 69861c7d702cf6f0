"""Arrival times: Poisson, Gamma, evenly spaced, or from a trace, at a rate that may change over time.

The load generator and the simulator share this module: the same seed gives the same times in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from partita_api.inferencesession import ArrivalProcess

Times = NDArray[np.float64]
"""Seconds from the start, ascending."""

MAX_ARRIVALS: Final = 100_000_000
"""The most arrivals of one load: 800 MB of arrival times."""


@dataclass(frozen=True)
class RateSchedule:
    """A rate that changes in steps: from `starts_s[i]` on it is `rates[i]` requests per second."""

    starts_s: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.starts_s or len(self.starts_s) != len(self.rates):
            raise ValueError("a rate schedule needs a rate for each of its steps, and at least one step")
        if self.starts_s[0] != 0:
            raise ValueError(f"a rate schedule starts at second 0, not {self.starts_s[0]:g}")
        if any(later <= earlier for earlier, later in zip(self.starts_s, self.starts_s[1:], strict=False)):
            raise ValueError("the steps of a rate schedule must ascend in time")
        if not all(0 <= rate < float("inf") for rate in self.rates):
            raise ValueError("the rates of a schedule must be finite and not negative")

    @classmethod
    def constant(cls, rate: float) -> Self:
        """A constant rate."""
        return cls((0.0,), (rate,))

    @classmethod
    def parse(cls, text: str) -> Self:
        """`"8"` for a constant rate, `"0:4,30:8,60:2"` for 4 requests/s, from second 30 on 8, from 60 on 2.

        Raises ValueError.
        """
        steps = [step.strip().rpartition(":") for step in text.split(",")]
        try:
            return cls(
                tuple(float(start) if start else 0.0 for start, _, _ in steps), tuple(float(r) for _, _, r in steps)
            )
        except ValueError as error:
            raise ValueError(f"rate {text!r}: {error}; write it such as 8 or 0:4,30:8,60:2") from error

    def rate_at(self, second: float) -> float:
        """Requests per second at a time."""
        return self.rates[int(np.searchsorted(self.starts_s, second, side="right")) - 1]

    def expected(self, until_s: float) -> tuple[Times, NDArray[np.float64]]:
        """The corners of the piecewise linear function from time to the expected number of arrivals so far."""
        corners = np.array([*(s for s in self.starts_s if s < until_s), until_s])
        numbers = np.concatenate(([0.0], np.cumsum(np.diff(corners) * self.rates[: len(corners) - 1])))
        return corners, numbers


def arrival_times(
    process: ArrivalProcess,
    rate: RateSchedule,
    duration_s: float,
    generator: np.random.Generator,
    gamma_shape: float = 1.0,
) -> Times:
    """Arrivals in [0, duration_s), reproducible from the generator's seed.

    Gaps are drawn for a rate of 1 and then scaled by the current rate, which is exact for Poisson arrivals at a
    changing rate. `gamma_shape` is the shape of Gamma gaps: 1 is Poisson, less is burstier.
    Raises ValueError for a duration or a shape that is not positive, and for more than MAX_ARRIVALS arrivals.
    """
    if duration_s <= 0:
        raise ValueError(f"arrivals need a duration above 0 s, not {duration_s:g}")
    if gamma_shape <= 0:
        raise ValueError(f"the shape of Gamma arrivals must be above 0, not {gamma_shape:g}")
    corners, expected = rate.expected(duration_s)
    _check_number(float(expected[-1]))
    unit_times = _unit_rate_times(process, float(expected[-1]), generator, gamma_shape)
    return np.interp(unit_times, expected, corners)


def trace_times(gaps_s: Sequence[float], duration_s: float) -> Times:
    """Arrivals in [0, duration_s) with these gaps; the trace repeats if it is too short.

    Raises ValueError for a gap that is negative or not a number, for gaps whose sum is 0, and for more than
    MAX_ARRIVALS arrivals.
    """
    gaps = np.asarray(gaps_s, dtype=np.float64)
    if not gaps.size or not np.isfinite(gaps).all() or (gaps < 0).any() or gaps.sum() <= 0:
        raise ValueError("a trace needs gaps in seconds, none below 0, and together above 0")
    _check_number(duration_s / gaps.mean())
    repeats = int(np.ceil(duration_s / gaps.sum())) + 1
    times = np.cumsum(np.tile(gaps, repeats))
    return times[times < duration_s]


def parse_trace(text: str) -> tuple[float, ...]:
    """Gaps between arrivals in seconds, one per line; empty lines and lines that begin with # are skipped.

    Raises ValueError with the line number.
    """
    gaps = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                gaps.append(float(line))
            except ValueError:
                raise ValueError(f"line {number} of the trace, {line.strip()!r}, is not a number of seconds") from None
    return tuple(gaps)


def _check_number(arrivals: float) -> None:
    if not arrivals <= MAX_ARRIVALS:
        raise ValueError(f"{arrivals:.3g} requests are more than {MAX_ARRIVALS:,}; give a lower rate or a shorter time")


def _unit_rate_times(
    process: ArrivalProcess, until: float, generator: np.random.Generator, gamma_shape: float
) -> NDArray[np.float64]:
    """Arrivals at a rate of 1 in [0, until)."""
    if process is ArrivalProcess.UNIFORM:
        return np.arange(np.ceil(until), dtype=np.float64)
    shape = gamma_shape if process is ArrivalProcess.GAMMA else 1.0
    drawn = [np.zeros(0)]
    total = 0.0
    while total < until:
        gaps = generator.gamma(shape, 1 / shape, size=int(until - total) + 64)
        drawn.append(total + np.cumsum(gaps))
        total = float(drawn[-1][-1])
    times = np.concatenate(drawn)
    return times[times < until]
