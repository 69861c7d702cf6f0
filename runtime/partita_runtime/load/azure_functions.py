"""Arrivals like those of the Azure Functions traces, which PPipe and others use: read from files, or synthetic.

The 2019 trace (Shahrad et al., USENIX ATC 2020) counts the invocations of each function per minute, one file per day;
the 2021 trace (Zhang et al., SOSP 2021) has one line per invocation of two weeks. Partita contains neither:
https://github.com/Azure/AzurePublicDataset.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from math import tau

import numpy as np

from partita_runtime.load.arrivals import RateSchedule

_KEYS_2019 = ("HashOwner", "HashApp", "HashFunction", "Trigger")
_MINUTES_OF_A_DAY = 1440


def read_minute_counts(lines: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Invocations by minute of each function, from a file `invocations_per_function_md.anon.d<day>.csv` of 2019.

    Raises ValueError with the line number.
    """
    rows = csv.DictReader(lines)
    minutes = [name for name in rows.fieldnames or () if name not in _KEYS_2019]
    if "HashFunction" not in (rows.fieldnames or ()) or not minutes:
        raise ValueError("line 1: a trace of 2019 begins with HashOwner,HashApp,HashFunction,Trigger,1,2,...")
    counts: dict[str, tuple[int, ...]] = {}
    for row in rows:
        try:
            found = tuple(int(row[minute]) for minute in minutes)
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {rows.line_num}: a minute has no whole number of invocations") from error
        if min(found) < 0:
            raise ValueError(f"line {rows.line_num}: a minute has fewer than 0 invocations")
        former = counts.get(row["HashFunction"], (0,) * len(found))
        counts[row["HashFunction"]] = tuple(a + b for a, b in zip(former, found, strict=True))
    return counts


def read_invocations(lines: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Ascending start times in seconds of each function, from `AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt`.

    A line holds app, func, end_timestamp and duration; an invocation starts at its end minus its duration.
    Raises ValueError with the line number.
    """
    rows = csv.DictReader(lines)
    if not {"func", "end_timestamp", "duration"} <= set(rows.fieldnames or ()):
        raise ValueError("line 1: a trace of 2021 begins with app,func,end_timestamp,duration")
    starts: dict[str, list[float]] = {}
    for row in rows:
        try:
            start = float(row["end_timestamp"]) - float(row["duration"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {rows.line_num}: end_timestamp and duration must be seconds") from error
        starts.setdefault(row["func"], []).append(start)
    return {function: tuple(sorted(times)) for function, times in starts.items()}


def shared_out_counts(functions: Mapping[str, Sequence[int]], models: int) -> list[tuple[int, ...]]:
    """Invocations per minute of each model: functions are assigned to models in turn (PPipe, section 7.1)."""
    minutes = max((len(counts) for counts in functions.values()), default=0)
    shared = np.zeros((models, minutes), dtype=np.int64)
    for number, counts in enumerate(functions.values()):
        shared[number % models, : len(counts)] += np.asarray(counts)
    return [tuple(row) for row in shared.tolist()]


def shared_out_starts(functions: Mapping[str, Sequence[float]], models: int) -> list[tuple[float, ...]]:
    """Ascending start times of each model: functions are assigned to models in turn (PPipe, section 7.1)."""
    shared: list[list[float]] = [[] for _ in range(models)]
    for number, starts in enumerate(functions.values()):
        shared[number % models] += starts
    return [tuple(sorted(starts)) for starts in shared]


def schedule_of_counts(counts: Sequence[int], mean_rate: float, step_s: float = 60.0) -> RateSchedule:
    """The rate per minute, scaled to a mean in requests per second; with `step_s` below 60 the trace runs faster.

    Raises ValueError if there were no invocations.
    """
    total = sum(counts)
    if total <= 0:
        raise ValueError("a model without invocations has no rate to scale; share the functions out to fewer models")
    rates = tuple(mean_rate * len(counts) * count / total for count in counts)
    return RateSchedule(tuple(step_s * number for number in range(len(counts))), rates)


def gaps_of_starts(starts: Sequence[float], mean_rate: float) -> tuple[float, ...]:
    """Gaps in seconds between the invocations, scaled to a mean in requests per second; bursts are kept.

    Raises ValueError if all invocations are at the same time.
    """
    if len(starts) < 2 or starts[-1] <= starts[0]:
        raise ValueError("a trace needs invocations at two different times or more")
    gaps = np.diff(np.asarray(starts, dtype=np.float64))
    return tuple((gaps / (gaps.mean() * mean_rate)).tolist())


def synthetic_schedules(
    models: int,
    mean_rate: float,
    minutes: int,
    generator: np.random.Generator,
    *,
    popularity: float = 0.9,
    diurnal: float = 0.5,
    burst_spread: float = 0.5,
    step_s: float = 60.0,
) -> list[RateSchedule]:
    """Synthetic rates of several models with a sum of `mean_rate` requests per second on average.

    popularity: exponent of Zipf's law; the first model gets the most requests, 0 gives all models the same.
    diurnal: amplitude of the daily cycle (1440 steps) as a share of the mean, from 0 to 1; phases differ by model.
    burst_spread: standard deviation of the logarithm of each minute's rate, which has a heavy tail.
    """
    if models < 1 or minutes < 1 or not 0 <= diurnal <= 1 or burst_spread < 0:
        raise ValueError("synthetic rates need a model, a minute, 0 <= diurnal <= 1 and burst_spread >= 0")
    shares = np.arange(1, models + 1, dtype=np.float64) ** -popularity
    day = tau * np.arange(minutes) / _MINUTES_OF_A_DAY
    swing = 1 + diurnal * np.sin(day[None, :] + generator.uniform(0, tau, (models, 1)))
    bursts = generator.lognormal(-(burst_spread**2) / 2, burst_spread, (models, minutes))
    rates = shares[:, None] * swing * bursts
    rates *= mean_rate * minutes / rates.sum()
    starts = tuple(step_s * number for number in range(minutes))
    return [RateSchedule(starts, tuple(row)) for row in rates.tolist()]
