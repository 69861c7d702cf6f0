"""The latency model: collection times of batches, the longest path of a session, and the distribution of slack.

All times are whole microseconds, rounded up, so that sums over a path are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import ModulePath, Time, longest_paths, topological_order, with_size_classes

SECOND = 1_000_000


def collection_micros(batch: int, rate: float) -> int:
    """How long the first sample of a batch waits for the last one when `rate` samples per second arrive evenly.

    Each batch holds consecutive samples, and batches go to the vGPUs in turn. So every batch is collected at the
    module's whole rate w (Harpagon, Theorem 1). The theorem has batch / w. The first sample does not wait for itself,
    so the time is (batch - 1) / w here, and 0 for a batch of one. The SLO's margin covers uneven arrivals (PPipe's
    published code multiplies by 1.3 instead, in addition to its own margin).
    """
    return ceil((batch - 1) * SECOND / rate)


@dataclass(frozen=True)
class LatencyGraph:
    """A session's DAG with the time limit of its paths."""

    order: tuple[str, ...]
    """All modules, each after its upstream modules."""
    edges: tuple[tuple[str, str], ...]
    fixed: Mapping[str, int]
    """Microseconds of each CPU function."""
    slo_micros: int
    """The time limit of a path: the SLO less the margin."""

    @property
    def models(self) -> tuple[str, ...]:
        """The modules whose latency is planned."""
        return tuple(name for name in self.order if name not in self.fixed)

    def through(self, latency: Mapping[str, Time]) -> dict[str, Time]:
        """For every module the time of the longest path through it; `latency` holds the models only."""
        times: dict[str, Time] = {**self.fixed, **latency}
        ending = longest_paths(self.order, self.edges, times)
        beginning = longest_paths(self.order[::-1], [(b, a) for a, b in self.edges], times)
        return {name: ending[name].time + beginning[name].time - times[name] for name in self.order}

    def longest(self, latency: Mapping[str, Time]) -> Time:
        """The time of the longest path."""
        return self._longest(latency).time

    def keeps_slo(self, latency: Mapping[str, Time]) -> bool:
        """Whether every path keeps the SLO less the margin."""
        return self.longest(latency) <= self.slo_micros

    def critical_path(self, latency: Mapping[str, Time]) -> tuple[str, ...]:
        """The modules of a longest path, in order."""
        return self._longest(latency).modules

    def _longest(self, latency: Mapping[str, Time]) -> ModulePath:
        paths = longest_paths(self.order, self.edges, {**self.fixed, **latency})
        return max(paths.values(), key=lambda path: path.time)

    def latency_headroom(self, least: Mapping[str, int]) -> dict[str, int]:
        """The longest latency of each model that keeps the SLO while all others have their `least` latency."""
        longest = self.through(least)
        return {name: self.slo_micros - int(longest[name]) + least[name] for name in self.models}


def latency_graph(spec: InferenceSessionSpec) -> LatencyGraph:
    """The DAG of a session's size classes, with its SLO less `planner.margin_percent`."""
    spec = with_size_classes(spec)
    return LatencyGraph(
        order=topological_order(spec),
        edges=tuple((e.source, e.target) for e in spec.edges),
        fixed={m.name: m.reserved_millis * 1000 for m in spec.modules if m.reserved_millis is not None},
        slo_micros=spec.slo.latency_ms * 10 * (100 - spec.planner.margin_percent),
    )


def distribute_slack(graph: LatencyGraph, latency: Mapping[str, int]) -> dict[str, int]:
    """Budgets of the models: their latencies plus slack in proportion to them.

    All latencies grow by one factor until some path is full. The budgets on that path are then final, and the others
    grow further. So no path exceeds the SLO, every model lies on a full path, and a module with more work has more
    slack to queue in. CPU functions keep their fixed time. Needs graph.keeps_slo(latency).
    """
    settled: dict[str, Fraction] = {}
    while len(settled) < len(latency):
        growing = {name: Fraction(micros) for name, micros in latency.items() if name not in settled}
        factor = _largest_factor(graph, settled, growing)
        grown = {**settled, **{name: factor * micros for name, micros in growing.items()}}
        full = {name for name, time in graph.through(grown).items() if time == graph.slo_micros}
        settled |= {name: grown[name] for name in growing if name in full}
    return {name: floor(settled[name]) for name in latency}


def _largest_factor(graph: LatencyGraph, settled: Mapping[str, Fraction], growing: Mapping[str, Fraction]) -> Fraction:
    """The largest factor on the `growing` latencies that keeps every path within the SLO.

    The longest path is convex and piecewise linear in the factor, so Newton's method from above ends exactly.
    """
    factor = graph.slo_micros / min(growing.values())
    while True:
        grown = {**settled, **{name: factor * micros for name, micros in growing.items()}}
        excess = graph.longest(grown) - graph.slo_micros
        if excess <= 0:
            return factor
        path = graph.critical_path(grown)
        slope = sum((growing[name] for name in path if name in growing), Fraction(0))
        factor -= Fraction(excess) / slope
