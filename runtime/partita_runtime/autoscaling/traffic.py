"""How a session's requests spread over its graph and its endpoints answer: what is counted, and has lastingly changed.

A plan is made for the declared fan-outs, shares and latencies, or for measured ones. As a rate, a measured value leads
to a new plan only if it has lasted, and if enough answers were counted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Final, Self, TypeVar

from pydantic import Field

from partita_api.meta import StatusModel
from partita_runtime.autoscaling.latency import STEPS, latencies_of, percentile
from partita_runtime.autoscaling.load_level import FALL, FALL_SECONDS, RISE, RISE_SECONDS

ENOUGH: Final = 400
"""A mean of so many answers has a standard error of about 5 %."""
ENOUGH_CALLS: Final = 1000
"""Of so many calls, ten took longer than the 99th percentile."""
LONGEST_SECONDS: Final = 1800.0
"""The counts of so long a time count, if fewer were not enough."""
_Count = Annotated[int, Field(ge=0, le=1 << 53)]
_SPACING_SECONDS: Final = 10.0
"""About the time between two counts that are kept."""


class EdgeDecision(StrEnum):
    """Whether an edge sends an answer on. Without a condition it sends all."""

    TAKEN = "taken"
    NOT_TAKEN = "not_taken"
    FAILED = "failed"
    """It has no value for the answer, so the request fails."""


def edge_key(source: str, target: str) -> str:
    """What is counted for an edge: its modules."""
    return f"{source}/{target}"


def decision_key(source: str, target: str, decision: EdgeDecision) -> str:
    """What is counted for an edge: its modules, and a decision."""
    return f"{source}/{target}/{decision}"


class TrafficCounts(StatusModel):
    """What a session counts of its traffic, since the counting began."""

    decided: dict[str, _Count] = {}
    """Answers at edges that vary, by `decision_key`."""
    sent: dict[str, _Count] = {}
    """Sub-requests that they made, by `edge_key`."""
    endpoint_calls: dict[str, _Count] = {}
    """Calls of endpoints by how long they took, by `latency_key`."""
    size_classes: dict[str, _Count] = {}
    """Samples of models with size classes, by the name of the smallest class that they fit into."""

    def only_of(
        self, edges: Iterable[tuple[str, str]], endpoints: Iterable[str], size_classes: Iterable[str] = ()
    ) -> "TrafficCounts":
        """The counts of these edges, endpoints and size classes only, whatever else a frontend reports."""
        pairs = list(edges)
        keys = {
            "decided": [decision_key(*pair, decision) for pair in pairs for decision in EdgeDecision],
            "sent": [edge_key(*pair) for pair in pairs],
            "endpoint_calls": [f"{module}/{step}" for module in endpoints for step in range(STEPS)],
            "size_classes": list(size_classes),
        }
        counts = {name: getattr(self, name) for name in keys}
        return TrafficCounts(
            **{name: {key: counts[name][key] for key in keys[name] if key in counts[name]} for name in keys}
        )

    def continues(self, earlier: Self) -> bool:
        """Whether the counting has not begun again since an earlier moment."""
        pairs = (
            (self.decided, earlier.decided),
            (self.sent, earlier.sent),
            (self.endpoint_calls, earlier.endpoint_calls),
            (self.size_classes, earlier.size_classes),
        )
        return all(now.get(key, 0) >= count for now, before in pairs for key, count in before.items())

    def of_edge(self, source: str, target: str) -> "EdgeCounts":
        """What was counted at one edge."""
        taken, left = (
            self.decided.get(decision_key(source, target, decision), 0)
            for decision in (EdgeDecision.TAKEN, EdgeDecision.NOT_TAKEN)
        )
        return EdgeCounts(taken + left, taken, self.sent.get(edge_key(source, target), 0))

    def of_size_class(self, name: str, classes: Sequence[str]) -> "EdgeCounts":
        """The samples of all `classes` of a module, as answers of which those of one class were sent on."""
        samples = self.size_classes.get(name, 0)
        return EdgeCounts(sum(self.size_classes.get(each, 0) for each in classes), samples, samples)


@dataclass(frozen=True)
class EdgeCounts:
    """What was counted at one edge during some time."""

    answers: int
    """Answers of the upstream module."""
    taken: int
    """Those for which the edge's condition was true; without a condition all."""
    sub_requests: int
    """What they made, up to `fanOut.max` each."""

    def since(self, earlier: Self) -> "EdgeCounts":
        """What was counted since an earlier moment of the same counting."""
        return EdgeCounts(
            self.answers - earlier.answers,
            self.taken - earlier.taken,
            self.sub_requests - earlier.sub_requests,
        )

    @property
    def mean(self) -> float:
        """Sub-requests of an answer, sent on or not."""
        return self.share * self.fan_out

    @property
    def share(self) -> float:
        """Share of the answers that were sent on; never 0, as if one was."""
        return max(self.taken, 1) / self.answers

    @property
    def fan_out(self) -> float:
        """Sub-requests of an answer that was sent on; never 0, as if there was one."""
        return max(self.sub_requests, 1) / max(self.taken, 1)

    def __bool__(self) -> bool:
        return self.answers > 0

    def suffice(self, planned: float) -> bool:
        """Whether there are enough: of what was counted, or of what was planned for and did not come."""
        return max(min(self.taken, self.sub_requests), min(planned, 1.0) * self.answers) >= ENOUGH


@dataclass(frozen=True)
class CallCounts:
    """How many calls of an endpoint took how long during some time."""

    calls: tuple[int, ...]
    """By the number of the step (`latency.latencies_of`)."""

    def __bool__(self) -> bool:
        return any(self.calls)

    def since(self, earlier: Self) -> "CallCounts":
        """What was counted since an earlier moment of the same counting."""
        return CallCounts(tuple(now - before for now, before in zip(self.calls, earlier.calls, strict=True)))

    def suffice(self) -> bool:
        """Whether there are enough for a 99th percentile."""
        return sum(self.calls) >= ENOUGH_CALLS

    @property
    def p99(self) -> int:
        """The 99th percentile, in microseconds."""
        return percentile(self.calls, 0.99)


_Counts = TypeVar("_Counts", EdgeCounts, CallCounts)


@dataclass(frozen=True)
class TrafficHistory:
    """Recent counts of a session, oldest first."""

    samples: tuple[tuple[float, TrafficCounts], ...] = ()
    """Each with its seconds on any steady clock."""
    generation: int = 0
    """The session's generation. What was counted for another one may be of another graph."""

    def add(self, at: float, counts: TrafficCounts, generation: int) -> "TrafficHistory":
        """The history with one more sample, without outdated ones and with close ones merged."""
        earlier = [(then, kept) for then, kept in self.samples if then < at]
        if generation != self.generation or (earlier and not counts.continues(earlier[-1][1])):
            return TrafficHistory(((at, counts),), generation)
        if len(earlier) >= 2 and earlier[-1][0] - earlier[-2][0] < _SPACING_SECONDS:
            del earlier[-1]
        recent = [(then, kept) for then, kept in earlier if then > at - LONGEST_SECONDS]
        return TrafficHistory((*recent, (at, counts)), generation)


def lasting_edge(
    history: TrafficHistory, source: str, target: str, planned: float, *, may_fall: bool = True
) -> EdgeCounts | None:
    """What was counted at an edge, if plans must be made for it; None while the planned value is still right.

    `planned` is the mean number of sub-requests of an answer, sent on or not, that plans are made for. It must have
    been exceeded in each third of a time that is long enough, or not reached in any. The highest third counts.
    """

    found = _lasting(history, lambda counts: counts.of_edge(source, target), planned, may_fall)
    return None if found is None else found[0]


def lasting_shares(
    history: TrafficHistory, classes: Sequence[str], planned: Sequence[float], *, may_fall: bool = True
) -> tuple[float, ...] | None:
    """The share of each size class of a module, if plans must be made for them; None while `planned` is still right.

    The rule is that of `lasting_edge` for each of the classes, and the shares are those of the whole time. Shares fall
    where others rise: without `may_fall`, only a share that has risen counts.
    """
    for number, name in enumerate(classes):

        def of_class(counts: TrafficCounts, name: str = name) -> EdgeCounts:
            return counts.of_size_class(name, classes)

        if (found := _lasting(history, of_class, planned[number], may_fall)) is not None:
            _, start = found
            (_, before), (_, now) = history.samples[start], history.samples[-1]
            counts = [now.size_classes.get(each, 0) - before.size_classes.get(each, 0) for each in classes]
            return tuple(count / sum(counts) for count in counts)
    return None


def _lasting(
    history: TrafficHistory, of_edge: Callable[[TrafficCounts], EdgeCounts], planned: float, may_fall: bool
) -> tuple[EdgeCounts, int] | None:
    """The highest third of the time in which the mean has changed, and the number of the sample that begins it."""

    def suffice(counts: EdgeCounts) -> bool:
        return counts.suffice(planned)

    risen, start = _thirds(history, RISE_SECONDS, of_edge, suffice)
    if risen and min(third.mean for third in risen) > planned * RISE:
        return max(risen, key=lambda third: third.mean), start
    fallen, start = _thirds(history, FALL_SECONDS, of_edge, suffice)
    if may_fall and fallen and max(third.mean for third in fallen) < planned * FALL:
        return max(fallen, key=lambda third: third.mean), start
    return None


def lasting_latency(history: TrafficHistory, module: str, planned: float) -> int | None:
    """The 99th percentile (microseconds) of an endpoint's calls, if plans must be made for it; else None.

    `planned` is what plans are made for. The rule is that of `lasting_edge`.
    """

    def of_endpoint(counts: TrafficCounts) -> CallCounts:
        return CallCounts(latencies_of(module, counts.endpoint_calls))

    risen = [third.p99 for third in _thirds(history, RISE_SECONDS, of_endpoint, CallCounts.suffice)[0]]
    if risen and min(risen) > planned * RISE:
        return max(risen)
    fallen = [third.p99 for third in _thirds(history, FALL_SECONDS, of_endpoint, CallCounts.suffice)[0]]
    return max(fallen) if fallen and max(fallen) < planned * FALL else None


def _thirds(
    history: TrafficHistory,
    seconds: float,
    counts_of: Callable[[TrafficCounts], _Counts],
    suffice: Callable[[_Counts], bool],
) -> tuple[list[_Counts], int]:
    """The shortest time of at least `seconds` with enough counts, in its thirds; empty if there is none.

    With the number of the sample that begins it.

    A longer time has more counts. So few of them are looked at.
    """
    times = [at for at, _ in history.samples]
    last = len(times) - 1

    def between(begin: int, end: int) -> _Counts:
        return counts_of(history.samples[end][1]).since(counts_of(history.samples[begin][1]))

    def is_too_short(begin: int) -> bool:
        return not suffice(between(begin, last))

    long_enough = range(bisect_right(times, times[last] - seconds) if times else 0)
    start = bisect_left(long_enough, True, key=is_too_short) - 1
    if start < 0:
        return [], 0
    third = (times[last] - times[start]) / 3
    marks = [start, bisect_right(times, times[start] + third) - 1, bisect_right(times, times[last] - third) - 1, last]
    parts = [between(begin, end) for begin, end in pairwise(marks)]
    return [part for part in parts if part], start
