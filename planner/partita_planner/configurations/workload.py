"""A workload: modules with rates and configurations, the DAG between them, and the SLO."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

MAX_PATHS = 10_000


class InvalidWorkloadError(ValueError):
    """The workload is invalid; the message says why."""


@dataclass(frozen=True)
class Configuration:
    """How one machine runs a module (Harpagon, section III-A).

    Raises InvalidWorkloadError for invalid numbers.
    """

    batch: int
    duration: float
    """Seconds that a batch takes."""
    hardware: str
    price: float
    """Of the machine, per hour."""
    concurrency: int = 1
    """Machines that share one GPU, each at its share of the GPU's price (Piccolo's concurrency level)."""
    load: float = 1.0
    """Share of the time that the machine may work; the rest is reserved for bursts."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.concurrency < 1:
            raise InvalidWorkloadError(f"{self}: batch and concurrency must be at least 1")
        if not (isfinite(self.duration) and self.duration > 0):
            raise InvalidWorkloadError(f"{self}: the duration must be a number of seconds above 0")
        if not (isfinite(self.price) and self.price >= 0):
            raise InvalidWorkloadError(f"{self}: the price must be a number and not below 0")
        if not 0 < self.load <= 1:
            raise InvalidWorkloadError(f"{self}: the load must be above 0 and at most 1")

    @cached_property
    def throughput(self) -> float:
        """Requests per second of one machine, t."""
        return self.load * self.batch / self.duration

    @cached_property
    def request_price(self) -> float:
        """Price per hour of one request per second: p / t, the inverse of the papers' throughput-cost ratio."""
        return self.price / self.throughput


@dataclass(frozen=True)
class WorkloadModule:
    """One module of an application. Raises InvalidWorkloadError without a rate above 0 or without configurations."""

    name: str
    rate: float
    """Requests per second that arrive."""
    configurations: tuple[Configuration, ...]

    def __post_init__(self) -> None:
        if not (isfinite(self.rate) and self.rate > 0):
            raise InvalidWorkloadError(f"module {self.name!r} has a rate of {self.rate}: it must be a number above 0")
        if not self.configurations:
            raise InvalidWorkloadError(f"module {self.name!r} has no configuration: it needs at least one")

    @cached_property
    def ranked(self) -> tuple[Configuration, ...]:
        """The configurations in the order of dispatch: highest throughput-cost ratio first, then the fastest."""
        return tuple(sorted(self.configurations, key=lambda c: (c.request_price, c.duration, c.batch, c.hardware)))


@dataclass(frozen=True)
class WorkloadPath:
    """A path through the DAG."""

    modules: tuple[str, ...]
    seconds: float
    """Time limit of its modules: the SLO less the fixed delays on the path."""


@dataclass(frozen=True)
class Workload:
    """An application with its load and SLO. Raises InvalidWorkloadError for an invalid DAG."""

    modules: tuple[WorkloadModule, ...]
    edges: tuple[tuple[str, str], ...]
    slo: float
    """Seconds from end to end."""
    delays: Mapping[str, float] = field(default_factory=dict)
    """Nodes of the DAG with a fixed time in seconds and no cost, such as CPU functions."""

    def __post_init__(self) -> None:
        if not (isfinite(self.slo) and self.slo > 0):
            raise InvalidWorkloadError(f"the SLO of {self.slo} s must be a number above 0")
        if not self.modules:
            raise InvalidWorkloadError("the workload has no module")
        names = [module.name for module in self.modules] + list(self.delays)
        if len(set(names)) < len(names):
            raise InvalidWorkloadError(f"two nodes have the same name: {', '.join(sorted(names))}")
        unknown = {end for edge in self.edges for end in edge} - set(names)
        if unknown:
            raise InvalidWorkloadError(f"edges name nodes that are not there: {', '.join(sorted(unknown))}")
        for name, delay in self.delays.items():
            if not (isfinite(delay) and delay >= 0):
                raise InvalidWorkloadError(f"node {name!r} takes {delay} s: it must be a number and not below 0")
        self.paths  # noqa: B018 (a cycle shows when the paths are listed)

    @cached_property
    def paths(self) -> tuple[WorkloadPath, ...]:
        """Every path from a root to a leaf, by the modules on it; of several with equal modules the tightest.

        Raises InvalidWorkloadError if there is a cycle, or more than MAX_PATHS.
        """
        nodes = [*(module.name for module in self.modules), *self.delays]
        after = {name: [b for a, b in self.edges if a == name] for name in nodes}
        roots = [name for name in nodes if all(b != name for _, b in self.edges)]
        if _has_cycle(after):
            raise InvalidWorkloadError("the edges form a cycle: remove one of them")
        tightest: dict[tuple[str, ...], float] = {}
        for count, trail in enumerate(_trails(roots, after), 1):
            if count > MAX_PATHS:
                raise InvalidWorkloadError(f"the DAG has more than {MAX_PATHS} paths")
            modules = tuple(name for name in trail if name not in self.delays)
            left = self.slo - sum(self.delays[name] for name in trail if name in self.delays)
            tightest[modules] = min(left, tightest.get(modules, left))
        return tuple(WorkloadPath(modules, seconds) for modules, seconds in tightest.items())

    @property
    def by_name(self) -> Mapping[str, WorkloadModule]:
        """The modules by name."""
        return {module.name: module for module in self.modules}

    def keeps_slo(self, latency: Mapping[str, float]) -> bool:
        """Whether every path keeps the SLO when modules have these latencies."""
        return all(sum(latency[name] for name in path.modules) <= path.seconds for path in self.paths)

    def latency_headroom(self, latency: Mapping[str, float]) -> dict[str, float]:
        """The longest latency of each module that keeps the SLO while the others keep these latencies."""
        slack = {name: float("inf") for name in latency}
        for path in self.paths:
            left = path.seconds - sum(latency[name] for name in path.modules)
            for name in path.modules:
                slack[name] = min(slack[name], left)
        return {name: latency[name] + slack[name] for name in latency}


def _trails(roots: Iterable[str], after: Mapping[str, list[str]]) -> Iterator[tuple[str, ...]]:
    for name in roots:
        if not after[name]:
            yield (name,)
        for trail in _trails(after[name], after):
            yield (name, *trail)


def _has_cycle(after: Mapping[str, list[str]]) -> bool:
    """Whether nodes remain after removing nodes without downstream nodes repeatedly."""
    left = dict(after)
    while ends := [name for name, targets in left.items() if not any(target in left for target in targets)]:
        for name in ends:
            del left[name]
    return bool(left)
