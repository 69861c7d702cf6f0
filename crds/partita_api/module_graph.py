"""The DAG of a session's modules: its cycles, an order, and its longest paths."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from partita_api.inferencesession import InferenceSessionSpec

Time = int | Fraction
"""Microseconds, or another unit of time."""


@dataclass(frozen=True)
class ModulePath:
    """Modules along a path of the session's DAG."""

    time: Time
    """The sum of their latencies."""
    modules: tuple[str, ...]


def topological_order(spec: InferenceSessionSpec) -> tuple[str, ...]:
    """Module names, each after all modules upstream of it; otherwise in the order of the manifest.

    Raises ValueError naming the modules of a cycle.
    """
    upstream = {m.name: {e.source for e in spec.edges if e.target == m.name} for m in spec.modules}
    order: list[str] = []
    while len(order) < len(upstream):
        ready = next((name for name, before in upstream.items() if name not in order and before <= set(order)), None)
        if ready is None:
            raise ValueError(f"the edges form a cycle: {' -> '.join(find_cycle(spec))}")
        order.append(ready)
    return tuple(order)


def longest_paths(
    order: Sequence[str], edges: Collection[tuple[str, str]], times: Mapping[str, Time]
) -> dict[str, ModulePath]:
    """For each module the longest path that ends with it.

    `order` has every module after all modules upstream of it; `times` are the modules' latencies.
    """
    longest: dict[str, ModulePath] = {}
    for name in order:
        upstream = [longest[a] for a, b in edges if b == name]
        before = max(upstream, key=lambda path: path.time, default=ModulePath(0, ()))
        longest[name] = ModulePath(before.time + times[name], (*before.modules, name))
    return longest


def longest_after(spec: InferenceSessionSpec, times: Mapping[str, int]) -> dict[str, int]:
    """For each module, the longest sum of `times` on a path through the modules after it.

    Modules without an entry in `times` count as 0.
    """
    own = {module.name: times.get(module.name, 0) for module in spec.modules}
    backwards = longest_paths(topological_order(spec)[::-1], [(e.target, e.source) for e in spec.edges], own)
    return {name: int(backwards[name].time) - own[name] for name in own}


def find_cycle(spec: InferenceSessionSpec) -> tuple[str, ...]:
    """The modules of one cycle in order, the first again at the end; empty if there is none."""
    downstream = {m.name: [e.target for e in spec.edges if e.source == m.name] for m in spec.modules}
    done: set[str] = set()

    def search(name: str, trail: tuple[str, ...]) -> tuple[str, ...]:
        if name in trail:
            return (*trail[trail.index(name) :], name)
        if name in done:
            return ()
        cycle = next(filter(None, (search(after, (*trail, name)) for after in downstream[name])), ())
        done.add(name)
        return cycle

    return next(filter(None, (search(m.name, ()) for m in spec.modules)), ())
