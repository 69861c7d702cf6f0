"""Nexus' assignment of models to GPUs: squishy bin packing (Shen et al., SOSP 2019, section 6.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from benchmarks.scheduling.goodput_cases.measure import Deployment, Model

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.emulation.placement import WorkerPlacement

SPARSE: Final = 0.1
"""GPU utilization below which a request rarely finds the GPU busy."""


@dataclass(frozen=True)
class _Node:
    """A GPU that runs a batch of each of its sessions, (model, rate), once in each duty cycle."""

    duty_ms: float
    sessions: tuple[tuple[Model, float], ...]

    @property
    def busy_ms(self) -> float:
        """Time of all batches of a duty cycle."""
        return sum(model.latency_ms(self.batch(model, rate)) for model, rate in self.sessions)

    def batch(self, model: Model, rate: float) -> int:
        """Requests that arrive in a duty cycle."""
        return max(1, ceil(rate * self.duty_ms / 1000 - 1e-9))

    def feasible(self) -> bool:
        """Whether all batches fit into the cycle, and requests that just missed one meet their SLO in the next."""
        return self.busy_ms <= self.duty_ms and all(
            self.duty_ms + model.latency_ms(self.batch(model, rate)) <= _slo_ms(model) for model, rate in self.sessions
        )


def nexus_deployment(models: Sequence[Model], gpus: int) -> Deployment:
    """The packing for the highest rate, the same for every model, that fits the GPUs.

    A model's rate is spread evenly over the GPUs that it needs. SLOs are those before they were rounded down.
    """
    busy = sum(m.latency_ms(_largest_batch(m)) / _largest_batch(m) / 1000 for m in models)
    low, high = 0.0, gpus * len(models) / busy
    best: list[_Node] = []
    while high - low > 0.002 * high:
        middle = (low + high) / 2
        nodes = _pack(models, middle / len(models))
        if len(nodes) <= gpus:
            low, best = middle, nodes
        else:
            high = middle
    placed = [
        WorkerPlacement(StageRef(model.name, "a", 0), f"gpu-{number}", f"node-{number}")
        for number, node in enumerate(best)
        for model, _ in node.sessions
    ]
    batches = {model.name: max(1, node.batch(model, rate)) for node in best for model, rate in node.sessions}
    replicas = {model.name: sum(place.stage.module == model.name for place in placed) for model in models}
    modules = tuple(model.planned(batches[model.name], replicas[model.name]) for model in models)
    plan = SchedulingPlan(name="nexus", policy="Nexus", modules=modules)
    return Deployment(plan, tuple(placed), {model.name: _slo_ms(model) for model in models})


def _slo_ms(model: Model) -> float:
    """Without rounding: Symphony's are twice the time of a batch of four, cut to whole milliseconds (its appendix C).

    Taken literally, they leave Nexus batches of three, and of one model none.
    """
    exact = 2 * model.latency_ms(4)
    return exact if int(exact) == model.slo_ms else model.slo_ms


def _largest_batch(model: Model) -> int:
    """The largest for which a request that just missed one meets its SLO with the next."""
    return model.largest_batch(_slo_ms(model) / 2)


def _pack(models: Sequence[Model], rate: float) -> list[_Node]:
    """Nodes for this rate of every model: best fit decreasing by occupancy.

    A model that does not meet its SLO if a request just missed a batch gets GPUs of its own that are mostly idle.
    """
    single: list[_Node] = []
    for model in models:
        batch = _largest_batch(model)
        if 2 * model.latency_ms(batch) > _slo_ms(model):
            count = ceil(rate * model.latency_ms(1) / 1000 / SPARSE)
            single += [_Node(model.latency_ms(1) / SPARSE, ((model, rate / count),))] * count
            continue
        count = ceil(rate * model.latency_ms(batch) / 1000 / batch)
        node = _alone(model, rate / count)
        single += [node] * count
    packed: list[_Node] = []
    for node in sorted(single, key=lambda node: -node.busy_ms / node.duty_ms):
        merged = [(other, _merged(other, node)) for other in packed]
        fitting = [(other, both) for other, both in merged if both is not None]
        if fitting:
            other, both = max(fitting, key=lambda pair: pair[1].busy_ms / pair[1].duty_ms)
            packed[packed.index(other)] = both
        else:
            packed.append(node)
    return packed


def _alone(model: Model, rate: float) -> _Node:
    """The node of one session with the longest duty cycle."""
    nodes = (
        _Node(min(1000 * batch / rate, _slo_ms(model) - model.latency_ms(batch)), ((model, rate),))
        for batch in range(_largest_batch(model), 0, -1)
    )
    return next((node for node in nodes if node.feasible()), _Node(_slo_ms(model) / 2, ((model, rate),)))


def _merged(one: _Node, other: _Node) -> _Node | None:
    """Both nodes on one GPU, with the shorter duty cycle, if that is feasible."""
    if {model.name for model, _ in one.sessions} & {model.name for model, _ in other.sessions}:
        return None
    both = _Node(min(one.duty_ms, other.duty_ms), one.sessions + other.sessions)
    return both if both.feasible() else None
