"""Checks of a session beyond its schema, and the rate of each module."""

from collections import Counter
from collections.abc import Iterator

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import find_cycle, longest_paths, topological_order
from partita_api.session.execution import BatchingPolicy
from partita_api.session.module import Join
from partita_api.session.size_classes import size_classes


def session_problems(spec: InferenceSessionSpec) -> tuple[str, ...]:
    """What is wrong with a session beyond its schema: a sentence each, with the fix. Empty if it is valid."""
    found = (*_module_problems(spec), *_edge_problems(spec), *_setting_problems(spec))
    if found:
        return found
    cycle = find_cycle(spec)
    if cycle:
        return (f"the edges form a cycle, {' -> '.join(cycle)}: remove one of them",)
    return tuple(_time_problems(spec))


def module_rates(spec: InferenceSessionSpec, rate: float) -> dict[str, float]:
    """Calls per second of each module when `rate` requests per second arrive; of each size class, its share of them.

    A module with one upstream module has the upstream rate times the edge's mean fan-out, and its share of the answers
    if the edge has a condition. With join Any, it has the sum of that over all modules upstream; with join First, at
    most one answer of a request. Roots run once for each request. So do joins that wait for all modules upstream.
    """
    classes = {module.name: size_classes(module) for module in spec.modules}
    joins = {module.name: module.join for module in spec.modules}
    rates: dict[str, float] = {}
    for name in topological_order(spec):
        edges = [e for e in spec.edges if e.target == name]
        rates[name] = sum(rates[e.source] * e.mean for e in edges)
        if joins[name] is Join.FIRST:
            rates[name] = min(rates[name], rate * max(float(e.fan_out.mean) for e in edges))
        elif not edges or (len(edges) > 1 and joins[name] is Join.ALL):
            rates[name] = rate
    return {each.name: whole * each.share for name, whole in rates.items() for each in classes[name]}


def _module_problems(spec: InferenceSessionSpec) -> Iterator[str]:
    for name, count in Counter(m.name for m in spec.modules).items():
        if count > 1:
            yield f"module {name!r} is defined {count} times: give each module its own name"
    for name, count in Counter(spec.pools).items():
        if count > 1:
            yield f"pool {name!r} is named {count} times in spec.pools: name it once"


def _edge_problems(spec: InferenceSessionSpec) -> Iterator[str]:
    models = {m.name for m in spec.modules if not m.function and m.join is Join.ALL}
    functions = {m.name for m in spec.modules if m.function}
    for edge in spec.edges:
        label = f"edge {edge.source} -> {edge.target}"
        if edge.target in functions and (float(edge.fan_out.mean), edge.fan_out.max) != (1, 1):
            yield (
                f"{label} fans out into a function, which runs once for each upstream answer: set fanOut on the edges "
                f"from {edge.target!r} instead"
            )
        if float(edge.fan_out.mean) == 0:
            yield f"{label} has a mean fan-out of 0, so {edge.target!r} is never called: remove the edge, or set a mean"
        if edge.share is not None and edge.share.fraction == 0:
            yield f"{label} has a share of 0%, so {edge.target!r} is never called: remove the edge, or set a share"
        if float(edge.fan_out.mean) > edge.fan_out.max:
            yield (
                f"{label} has a mean fan-out of {edge.fan_out.mean}, above its max of {edge.fan_out.max}: "
                f"raise fanOut.max to at least the mean"
            )
    for (source, target), count in Counter((e.source, e.target) for e in spec.edges).items():
        if count > 1:
            yield f"edge {source} -> {target} is defined {count} times: keep one"
    for name, count in Counter(target for _, target in {(e.source, e.target) for e in spec.edges}).items():
        if count > 1 and name in models:
            yield (
                f"model {name!r} has {count} upstream modules: join them in a function upstream of {name!r}, or set "
                "its join to Any or First, so that it runs for each of their answers, or for the first one"
            )
    upstream = Counter(edge.target for edge in spec.edges)
    for module in spec.modules:
        if module.join is not Join.ALL and upstream[module.name] < 2:
            yield f"module {module.name!r} has join {module.join}, but no two edges lead to it: remove join"


def _setting_problems(spec: InferenceSessionSpec) -> Iterator[str]:
    models = {module.name for module in spec.modules if module.model is not None}
    if unknown := sorted(spec.batching.modules.keys() - models):
        yield f"batching.modules names {', '.join(unknown)}, but the session has no such model: remove it"
    policies = {spec.batching.policy, *spec.batching.modules.values()}
    if spec.batching.elsa is not None and BatchingPolicy.ELSA not in policies:
        yield "batching.elsa is set, but no model has the policy Elsa: remove it, or set batching.policy to Elsa"


def _time_problems(spec: InferenceSessionSpec) -> Iterator[str]:
    millis = {m.name: m.reserved_millis or 0 for m in spec.modules}
    edges = [(e.source, e.target) for e in spec.edges]
    longest = max(path.time for path in longest_paths(topological_order(spec), edges, millis).values())
    left = spec.slo.latency_ms * (100 - spec.planner.margin_percent) / 100
    if longest >= left:
        yield (
            f"functions and endpoints alone may take {longest} ms, but the SLO of {spec.slo.latency_ms} ms less the "
            f"margin of {spec.planner.margin_percent} % leaves {left:g} ms: raise slo.latencyMs or lower their "
            "maxMillis"
        )
