"""The DAG of a session's modules: its cycles, an order, its longest paths, and the DAG as plans see it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.measured import Measured
from partita_api.session.edge import Edge
from partita_api.session.module import Module
from partita_api.session.size_classes import SizeClass, size_classes

Time = int | Fraction
"""Microseconds, or another unit of time."""


@dataclass(frozen=True)
class ModulePath:
    """Modules along a path of the session's DAG."""

    time: Time
    """The sum of their latencies."""
    modules: tuple[str, ...]


def with_size_classes(spec: InferenceSessionSpec) -> InferenceSessionSpec:
    """The session as its plans see it: the size classes of each module instead of the module.

    Each class has the module's edges and batching policy; a fan-out into it has its share of the samples. An upstream
    answer goes to one of the classes only. So a function after several classes of one module is not a join.
    """
    if all(module.sizes is None for module in spec.modules):
        return spec
    classes = {module.name: size_classes(module) for module in spec.modules}
    policies = {each.name: policy for name, policy in spec.batching.modules.items() for each in classes.get(name, ())}
    return spec.model_copy(
        update={
            "modules": tuple(each.module for module in spec.modules for each in classes[module.name]),
            "edges": tuple(
                _edge(edge, source, target)
                for edge in spec.edges
                for source in classes[edge.source]
                for target in classes[edge.target]
            ),
            "batching": spec.batching.model_copy(update={"modules": policies}),
        }
    )


def with_measured(spec: InferenceSessionSpec, measured: Measured | None) -> InferenceSessionSpec:
    """The session with measured values instead of those that it declares, where these are still what they were."""
    if measured is None:
        return spec
    return spec.model_copy(
        update={
            "edges": tuple(_measured_edge(edge, measured) for edge in spec.edges),
            "modules": tuple(_measured_module(module, measured) for module in spec.modules),
        }
    )


def _measured_module(module: Module, measured: Measured) -> Module:
    if module.sizes is not None and (sized := measured.of_sizes(module)) is not None:
        sizes = zip(module.sizes, sized.shares, strict=True)
        return module.model_copy(update={"sizes": tuple(s.model_copy(update={"share": share}) for s, share in sizes)})
    found = measured.of_endpoint(module)
    if found is None or module.endpoint is None:
        return module
    return module.model_copy(update={"endpoint": module.endpoint.model_copy(update={"max_millis": found.millis})})


def _measured_edge(edge: Edge, measured: Measured) -> Edge:
    found = measured.of_edge(edge)
    if found is None:
        return edge
    fan_out = edge.fan_out.model_copy(update={"mean": found.fan_out})
    return edge.model_copy(update={"fan_out": fan_out, "share": None if edge.when is None else found.share})


def _edge(edge: Edge, source: SizeClass, target: SizeClass) -> Edge:
    mean = Quantity(float(edge.fan_out.mean) * target.share)
    fan_out = edge.fan_out if target.share == 1 else edge.fan_out.model_copy(update={"mean": mean})
    return edge.model_copy(update={"source": source.name, "target": target.name, "fan_out": fan_out})


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
