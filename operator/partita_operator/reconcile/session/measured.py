"""What the session's plans are made for instead of what its spec declares, because it was measured."""

from collections.abc import Sequence
from math import ceil, floor, log10

from partita_api.fields.quantity import Percent, Quantity
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, RateSource
from partita_api.measured import Measured, MeasuredEdge, MeasuredEndpoint, MeasuredSizes
from partita_api.module_graph import with_measured
from partita_api.session.edge import Edge
from partita_api.session.module import Module
from partita_api.session.sizes import class_name, declared_shares
from partita_operator.ports import ServingSignals
from partita_operator.reconcile.session.annotations import pause_reason
from partita_operator.reconcile.world import SessionWorld
from partita_runtime.autoscaling.traffic import (
    EdgeCounts,
    TrafficHistory,
    lasting_edge,
    lasting_latency,
    lasting_shares,
)


def with_counted_traffic(
    history: TrafficHistory, session: InferenceSession, signals: ServingSignals | None, seconds: float
) -> TrafficHistory:
    """The history with what was counted until `seconds` of a monotonic clock."""
    if signals is None:
        return history
    edges = [(edge.source, edge.target) for edge in session.spec.edges]
    endpoints = [module.name for module in session.spec.modules if module.endpoint is not None]
    sized = [name for module in session.spec.modules for name in _classes(module)]
    counts = signals.traffic.only_of(edges, endpoints, sized)
    return history.add(seconds, counts, session.metadata.generation)


def planned_spec(world: SessionWorld) -> InferenceSessionSpec:
    """The session's spec as plans are made for it."""
    return with_measured(world.session.spec, measured(world))


def measured(world: SessionWorld) -> Measured | None:
    """What the last lasting change was measured as. The status keeps it for the next operator."""
    if world.session.spec.rate.source is RateSource.DECLARED:
        return None
    spec, known = world.session.spec, world.session.status.measured or Measured()
    # A paused session keeps what it has.
    traffic = world.traffic if pause_reason(world.session) is None else TrafficHistory()
    may_fall = not world.keeping_pools
    edges = [_edge(each, known.of_edge(each), traffic, may_fall) for each in spec.edges]
    endpoints = [_endpoint(each, known.of_endpoint(each), traffic) for each in spec.modules]
    sizes = [_sizes(each, known.of_sizes(each), traffic, may_fall) for each in spec.modules]
    found = Measured(
        edges=tuple(each for each in edges if each is not None),
        endpoints=tuple(each for each in endpoints if each is not None),
        sizes=tuple(each for each in sizes if each is not None),
    )
    return found if found.edges or found.endpoints or found.sizes else None


def _classes(module: Module) -> list[str]:
    """Names of the size classes of a module that has some."""
    return [class_name(module.name, size.size) for size in module.sizes or ()]


def _sizes(
    module: Module, known: MeasuredSizes | None, traffic: TrafficHistory, may_fall: bool
) -> MeasuredSizes | None:
    if module.sizes is None:
        return None
    declared = declared_shares(module.sizes)
    planned = [share.fraction for share in (declared if known is None else known.shares)]
    shares = lasting_shares(traffic, _classes(module), planned, may_fall=may_fall)
    if shares is None:
        return known
    return MeasuredSizes(module=module.name, shares=_adding_up(shares), declared_shares=declared)


def _adding_up(shares: Sequence[float]) -> tuple[Percent, ...]:
    """The shares in tenths of a percent, none of them 0%; the largest one is what is left of 100%."""
    tenths = [max(1, round(1000 * share)) for share in shares]
    largest = tenths.index(max(tenths))
    tenths[largest] += 1000 - sum(tenths)
    return tuple(_percent(count / 10) for count in tenths)


def _endpoint(module: Module, known: MeasuredEndpoint | None, traffic: TrafficHistory) -> MeasuredEndpoint | None:
    if module.endpoint is None:
        return None
    declared = module.endpoint.max_millis
    micros = lasting_latency(traffic, module.name, 1000 * (declared if known is None else known.millis))
    if micros is None:
        return known
    millis = ceil(micros / 1000)
    if millis >= declared:
        return None
    return MeasuredEndpoint(module=module.name, millis=millis, declared_millis=declared)


def _edge(edge: Edge, known: MeasuredEdge | None, traffic: TrafficHistory, may_fall: bool) -> MeasuredEdge | None:
    planned = edge.mean if known is None else float(known.fan_out) * known.share.fraction
    counts = lasting_edge(traffic, edge.source, edge.target, planned, may_fall=may_fall)
    return known if counts is None else _measured_edge(edge, counts)


def _measured_edge(edge: Edge, counts: EdgeCounts) -> MeasuredEdge:
    return MeasuredEdge.instead_of(
        edge,
        fan_out=Quantity(min(_two_digits_up(counts.fan_out), edge.fan_out.max)),
        share=_percent(_two_digits_up(100 * counts.share)),
    )


def _percent(number: float) -> Percent:
    """As many decimals as a Percent has, and never 0%."""
    return Percent(f"{Quantity(round(min(max(number, 0.0001), 100.0), 4))}%")


def _two_digits_up(number: float) -> float:
    """Rounded up to two significant digits: small differences do not lead to different plans."""
    decimals = 1 - floor(log10(number))
    return ceil(round(number * 10.0**decimals, 6)) / 10.0**decimals
