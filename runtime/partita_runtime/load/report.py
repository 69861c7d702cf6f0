"""How requests ended: each request, and a summary."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

ANSWERED: Final = "200"
TIMED_OUT: Final = "timeout"
NO_CONNECTION: Final = "connection"

LARGEST_LAG: Final = 0.05
"""A generator that is later than this share of the SLO (99th percentile) distorts its results."""


@dataclass(frozen=True)
class RequestRecord:
    """One request; times in seconds from the start of the schedule."""

    scheduled_s: float
    sent_s: float
    """When the generator sent it."""
    ended_s: float
    """When its answer was complete, or when it failed."""
    outcome: str
    """The HTTP status, or `timeout`, or `connection` (refused or broken)."""

    @property
    def latency_s(self) -> float:
        """Seconds from its scheduled time: a late generator cannot hide a slow server."""
        return self.ended_s - self.scheduled_s

    def is_good(self, slo_s: float) -> bool:
        """Whether it was answered within the SLO."""
        return self.outcome == ANSWERED and self.latency_s <= slo_s


@dataclass(frozen=True)
class Second:
    """The requests that were scheduled within one second."""

    second: int
    offered: int
    good: int
    late: int
    """Answered, but after the SLO."""
    failed: int
    p99_ms: float | None
    """99th percentile of the latencies of answered requests; None if there are none."""


@dataclass(frozen=True)
class LoadReport:
    """The summary of a run of the load generator; latencies are those of answered requests."""

    slo_ms: float
    duration_s: float
    """Length of the schedule."""
    requests: int
    offered_rate: float
    """Requests sent per second."""
    goodput: float
    """Requests per second answered within the SLO."""
    attainment: float
    """Share of all requests that were answered within the SLO."""
    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    outcomes: Mapping[str, int]
    """Requests by HTTP status, `timeout` or `connection`."""
    latency_percentiles_ms: tuple[float, ...]
    """Percentiles 0, 1, ..., 100, for plots; empty if no request was answered."""
    lag_p99_ms: float
    """How late the generator was (99th percentile)."""
    seconds: tuple[Second, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust the figures."""
        if self.lag_p99_ms <= LARGEST_LAG * self.slo_ms:
            return ()
        return (
            f"the load generator was up to {self.lag_p99_ms:.0f} ms late (99th percentile), more than "
            f"{LARGEST_LAG:.0%} of the SLO of {self.slo_ms:.0f} ms; its lag is part of every latency. "
            "Lower the rate, or run it on a separate machine.",
        )

    def to_json(self) -> str:
        """The report as a JSON object with the names of the fields."""
        return json.dumps(asdict(self), indent=2)


def summarize(records: Sequence[RequestRecord], *, slo_s: float, duration_s: float) -> LoadReport:
    """Summarize the requests of a schedule of `duration_s`."""
    latencies_ms = np.array([r.latency_s for r in records if r.outcome == ANSWERED]) * 1e3
    good = sum(r.is_good(slo_s) for r in records)
    lags_ms = np.array([r.sent_s - r.scheduled_s for r in records]) * 1e3
    return LoadReport(
        slo_ms=slo_s * 1e3,
        duration_s=duration_s,
        requests=len(records),
        offered_rate=len(records) / duration_s,
        goodput=good / duration_s,
        attainment=good / len(records) if records else 1.0,
        mean_ms=float(latencies_ms.mean()) if latencies_ms.size else None,
        p50_ms=_percentile(latencies_ms, 50),
        p90_ms=_percentile(latencies_ms, 90),
        p99_ms=_percentile(latencies_ms, 99),
        max_ms=_percentile(latencies_ms, 100),
        outcomes=dict(sorted(Counter(r.outcome for r in records).items())),
        latency_percentiles_ms=tuple(np.percentile(latencies_ms, range(101)).tolist()) if latencies_ms.size else (),
        lag_p99_ms=_percentile(lags_ms, 99) or 0.0,
        seconds=_by_second(records, slo_s, duration_s),
    )


def records_csv(records: Sequence[RequestRecord]) -> str:
    """The requests as CSV, one per line, in the order of the schedule."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(field.name for field in fields(RequestRecord)), "latency_s"])
    for r in records:
        writer.writerow(
            [f"{r.scheduled_s:.6f}", f"{r.sent_s:.6f}", f"{r.ended_s:.6f}", r.outcome, f"{r.latency_s:.6f}"]
        )
    return text.getvalue()


def _by_second(records: Sequence[RequestRecord], slo_s: float, duration_s: float) -> tuple[Second, ...]:
    buckets: list[list[RequestRecord]] = [[] for _ in range(max(1, int(np.ceil(duration_s))))]
    for record in records:
        buckets[min(int(record.scheduled_s), len(buckets) - 1)].append(record)
    return tuple(_second(i, bucket, slo_s) for i, bucket in enumerate(buckets))


def _second(index: int, records: Sequence[RequestRecord], slo_s: float) -> Second:
    answered_ms = np.array([r.latency_s for r in records if r.outcome == ANSWERED]) * 1e3
    good = sum(r.is_good(slo_s) for r in records)
    return Second(
        second=index,
        offered=len(records),
        good=good,
        late=len(answered_ms) - good,
        failed=len(records) - len(answered_ms),
        p99_ms=_percentile(answered_ms, 99),
    )


def _percentile(values: NDArray[np.float64], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values.size else None
