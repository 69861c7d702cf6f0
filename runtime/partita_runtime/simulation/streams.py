"""The simulation of independent models on shared workers, each with its own requests, SLO and report."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.arrivals import Arrivals
from partita_runtime.simulation.emulated_system import EmulatedSystem, Environment
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.failures import Failure
from partita_runtime.simulation.emulation.network import NO_CONTENTION, Contention
from partita_runtime.simulation.emulation.noise import EXACT, NO_DELAYS, Delays, Noise
from partita_runtime.simulation.emulation.placement import WorkerPlacement
from partita_runtime.simulation.event_loop import run
from partita_runtime.simulation.report import SimulationReport, Tally
from partita_runtime.simulation.scaling import Scaling

QuerySizes = Callable[[int, np.random.Generator], NDArray[np.int64]]
"""(number of queries, generator) -> the number of samples of each, at least 1."""


@dataclass(frozen=True)
class RequestStream:
    """The requests of one module."""

    module: str
    arrivals: Arrivals
    slo_ms: float
    sizes: QuerySizes | None = None
    """If given, each arrival is a query of several samples, which is in time if all of its samples are."""


def simulate_streams(
    plan: SchedulingPlan,
    streams: Sequence[RequestStream],
    seconds: float,
    seed: int,
    *,
    noise: Noise = EXACT,
    failures: Sequence[Failure] = (),
    delays: Delays = NO_DELAYS,
    contention: Contention = NO_CONTENTION,
    scaling: Scaling | None = None,
    placed: Sequence[WorkerPlacement] | None = None,
    timeline: bool = False,
    core: SchedulingCore | None = None,
) -> dict[str, SimulationReport]:
    """Run a plan for `seconds` of virtual time, and then until all requests have ended; returns one report per module.

    The same arguments give the same reports. Idle fractions, the timeline and the autoscaler's steps are those of all
    workers. With `scaling`, the autoscaler places the workers. `core` may be given, such as a recorded one.
    """
    environment = Environment(noise, failures, delays, contention, scaling, placed, timeline)
    system = EmulatedSystem(plan, seconds, environment, core)
    seeds = np.random.SeedSequence(seed).spawn(2 + len(streams))
    noisy, *drawn, failing = (np.random.default_rng(s) for s in seeds)
    queries = _queries(streams, drawn, seconds)
    outcomes = _Outcomes(system.clock, queries)
    cluster = system.start(outcomes.answered, noisy, failing)
    arrive = _arriving(system.core, queries, streams)
    run(system.clock, system.core, cluster, outcomes.dropped, queries.times, arrive)
    reports = system.report(cluster, outcomes.tallies(streams), seed)
    return {stream.module: report for stream, report in zip(streams, reports, strict=True)}


@dataclass(frozen=True)
class _Queries:
    """All queries in order of arrival; the core's request ids are the numbers of their samples."""

    times: "array[int]"
    """Arrival times (microseconds)."""
    streams: NDArray[np.int64]
    """The number of each query's stream."""
    first_samples: NDArray[np.int64]
    """The number of each query's first sample; the last entry is the number of all samples."""


def _queries(streams: Sequence[RequestStream], generators: Sequence[np.random.Generator], seconds: float) -> _Queries:
    times, sizes = [], []
    for stream, generator in zip(streams, generators, strict=True):
        times.append(np.rint(stream.arrivals(seconds, generator) * 1e6).astype(np.int64))
        count = times[-1].size
        sizes.append(stream.sizes(count, generator) if stream.sizes else np.ones(count, np.int64))
    numbers = np.repeat(np.arange(len(streams)), [each.size for each in times])
    all_times, all_sizes = np.concatenate(times), np.concatenate(sizes)
    order = np.lexsort((all_sizes, numbers, all_times))
    return _Queries(
        _compact(all_times[order]), numbers[order], np.concatenate(([0], np.cumsum(all_sizes[order], dtype=np.int64)))
    )


def _compact(numbers: NDArray[np.int64]) -> "array[int]":
    """The same numbers in less memory than a list, with the same speed of single reads."""
    return array("q", numbers.astype(np.int64).tobytes())


def _arriving(core: SchedulingCore, queries: _Queries, streams: Sequence[RequestStream]) -> Callable[[int], None]:
    """The function that handles the arrival of a query by its number."""
    slos = np.array([round(stream.slo_ms * 1000) for stream in streams], dtype=np.int64)
    deadlines = _compact(np.array(queries.times, dtype=np.int64) + slos[queries.streams])
    names = [stream.module for stream in streams]
    modules = [names[number] for number in queries.streams.tolist()]
    times, arrive = queries.times, core.arrive

    def one_sample(query: int) -> None:
        arrive(query, modules[query], deadlines[query], times[query])

    def all_samples(query: int) -> None:
        for sample in range(firsts[query], firsts[query + 1]):
            arrive(sample, modules[query], deadlines[query], times[query], query)

    firsts = _compact(queries.first_samples)
    return one_sample if firsts[-1] == len(times) else all_samples


class _Outcomes:
    """Records how samples end, and counts queries after the simulation."""

    def __init__(self, clock: VirtualClock, queries: _Queries) -> None:
        self._clock = clock
        self._queries = queries
        self._answered = array("q")
        """Sample numbers, batch by batch."""
        self._batches: list[tuple[int, int]] = []
        """(end, size) of each batch."""
        self._sizes: Counter[tuple[str, str, int]] = Counter()
        self._dropped: list[tuple[int, DropReason]] = []

    def answered(self, dispatch: Dispatch) -> None:
        """All samples of a batch are answered."""
        samples = dispatch.request_ids
        self._answered.extend(samples)
        self._batches.append((self._clock.now, len(samples)))
        self._sizes[dispatch.module, dispatch.pipeline, len(samples)] += 1

    def dropped(self, drop: Drop) -> None:
        """A sample is dropped."""
        self._dropped.append((drop.request_id, DropReason(drop.reason)))

    def tallies(self, streams: Sequence[RequestStream]) -> list[Tally]:
        """By stream: a query is answered with its last sample, and dropped with its first dropped sample."""
        queries, firsts = self._queries, self._queries.first_samples
        ends = np.full(firsts[-1], -1, dtype=np.int64)
        batches = np.array(self._batches, dtype=np.int64).reshape(-1, 2)
        ends[np.array(self._answered, dtype=np.int64)] = np.repeat(batches[:, 0], batches[:, 1])
        query_ends = np.maximum.reduceat(ends, firsts[:-1]) if ends.size else ends
        reasons: dict[int, DropReason] = {}
        owners = np.searchsorted(firsts, [sample for sample, _ in self._dropped], side="right") - 1
        for query, (_, reason) in zip(owners.tolist(), self._dropped, strict=True):
            reasons.setdefault(query, reason)
        served = query_ends >= 0
        served[list(reasons)] = False
        latencies = query_ends - np.array(queries.times, dtype=np.int64)
        tallies = []
        for number, stream in enumerate(streams):
            mine = queries.streams == number
            tally = Tally.of(latencies[mine & served], round(stream.slo_ms * 1000))
            tally.offered = int(mine.sum())
            tally.batch_sizes = self._batch_sizes(stream.module)
            tallies.append(tally)
        for query, reason in reasons.items():
            tallies[queries.streams[query]].dropped[reason] += 1
        return tallies

    def _batch_sizes(self, module: str) -> dict[str, Counter[int]]:
        sizes: dict[str, Counter[int]] = {}
        for (name, pipeline, size), batches in self._sizes.items():
            if name == module:
                sizes.setdefault(f"{name}/{pipeline}", Counter())[size] = batches
        return sizes
