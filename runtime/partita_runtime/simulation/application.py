"""The simulated application: its requests, their sub-requests, and what is not a model."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.module import Module
from partita_api.session.size_classes import served_classes
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.requests import RequestGraph, SubRequest
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.report import Tally

Ended = Callable[[DropReason | None], bool]
"""Called with the drop reason of a request, or None if it is answered; returns whether it will be tried again."""


class SimulatedApplication:
    """Requests of one session, each with one sample for every root module; functions take their full `maxMillis`.

    An answer spawns a binomially distributed number of sub-requests on an edge, with the mean and the max of the edge.
    On an edge with a condition it does so with the probability that is the edge's share.
    Each one for a module with size classes is of a random class, by the shares of these.
    """

    def __init__(
        self,
        session: InferenceSessionSpec,
        plan: SchedulingPlan,
        core: SchedulingCore,
        clock: VirtualClock,
        generator: np.random.Generator,
    ) -> None:
        self._core = core
        self._clock = clock
        self._generator = generator
        self._graph = RequestGraph(session, plan)
        self._slo = session.slo.latency_ms * 1000
        self._reserved = {m.name: m.reserved_millis * 1000 for m in session.modules if m.reserved_millis is not None}
        targets = {edge.target for edge in session.edges}
        self._root_samples = {module.name: 1 for module in session.modules if module.name not in targets}
        self._fan_outs = _fan_outs(session)
        self._shares = _shares(session)
        served = {module.name for module in plan.modules}
        self._classes = {m.name: _SizeMix.of(m, served) for m in session.modules if m.sizes is not None}
        self._modules = {name: module for module, mix in self._classes.items() for name in mix.names}
        """The modules of size classes."""
        self._next_request = 0
        self._ends: dict[int, Ended] = {}
        self.tally = Tally()

    def arrive(self, ended: Ended | None = None) -> None:
        """One more request, whose SLO begins now; `ended` is called at its end, and may keep it from being counted."""
        request_id = self._next_request
        self._next_request += 1
        self.tally.offered += 1
        if ended is not None:
            self._ends[request_id] = ended
        self._begin(request_id, self._graph.start(request_id, self._clock.now + self._slo, self._root_samples))

    def refused(self, reason: DropReason) -> None:
        """One more request, which is not admitted."""
        self.tally.offered += 1
        self.tally.dropped[reason] += 1

    def answered(self, dispatch: Dispatch) -> None:
        """All sub-requests of a batch are answered."""
        self.tally.count_batch(dispatch)
        for sub_id in dispatch.request_ids:
            self._completed(sub_id, self._modules.get(dispatch.module, dispatch.module))

    def dropped(self, drop: Drop) -> None:
        """A sub-request is dropped: its request fails, and its other sub-requests are cancelled.

        If its module is optional, the request goes on without it.
        """
        request_id = self._graph.request_of(drop.request_id)
        if request_id is None:
            return
        if self._graph.is_optional(drop.request_id):
            self._begin(request_id, self._graph.left_out(drop.request_id))
            self._finish(request_id)
            return
        for other in self._graph.failed(drop.request_id):
            self._core.cancel(other.sub_id, self._clock.now)
        self._graph.finished(request_id)
        if self._tried_again(request_id, drop.reason):
            self.tally.offered -= 1  # it is counted when it arrives again
        else:
            self.tally.dropped[drop.reason] += 1

    def _tried_again(self, request_id: int, reason: DropReason | None) -> bool:
        ended = self._ends.pop(request_id, None)
        return ended is not None and ended(reason)

    def _begin(self, request_id: int, subs: Iterable[SubRequest]) -> None:
        """Run sub-requests; a request is one call."""
        for sub in subs:
            micros = self._reserved.get(sub.module)
            if micros is None:
                self._core.arrive(sub.sub_id, self._served_by(sub.module), sub.deadline, self._clock.now, request_id)
            else:
                self._clock.at(self._clock.now + micros, self._completed, sub.sub_id, sub.module)

    def _served_by(self, module: str) -> str:
        """The module of the plan that one sample is for."""
        mix = self._classes.get(module)
        return module if mix is None else mix.names[mix.draw(self._generator)]

    def _completed(self, sub_id: int, module: str) -> None:
        request_id = self._graph.request_of(sub_id)
        if request_id is None:
            return
        children = {
            target: int(self._generator.binomial(most, share))
            for target, (most, share) in self._fan_outs[module].items()
        }
        children |= {target: 0 for target, share in self._shares[module].items() if self._generator.random() >= share}
        self._begin(request_id, self._graph.completed(sub_id, children))
        for other in self._graph.take_superseded():
            self._core.cancel(other.sub_id, self._clock.now)
        self._finish(request_id)

    def _finish(self, request_id: int) -> None:
        outcome = self._graph.finished(request_id)
        if outcome is not None:
            self._tried_again(request_id, None)
            self.tally.answered(self._clock.now - outcome.deadline + self._slo, self._slo)


@dataclass(frozen=True)
class _SizeMix:
    """The size classes of a module with replicas, and how often each serves a sample."""

    names: tuple[str, ...]
    up_to: NDArray[np.float64]
    """The share of samples that each class or a smaller one serves."""

    @classmethod
    def of(cls, module: Module, served: Container[str]) -> Self:
        classes = served_classes(module, served)
        return cls(tuple(each.name for each in classes), np.cumsum([each.share for each in classes]))

    def draw(self, generator: np.random.Generator) -> int:
        """The number of the class that serves a random sample."""
        return min(int(np.searchsorted(self.up_to, generator.random(), side="right")), len(self.names) - 1)


def _fan_outs(session: InferenceSessionSpec) -> dict[str, dict[str, tuple[int, float]]]:
    """For each module, its targets that are no functions, with trials and probability of a binomial distribution."""
    functions = {module.name for module in session.modules if module.function is not None}
    return {
        module.name: {
            edge.target: (edge.fan_out.max, min(1.0, float(edge.fan_out.mean) / edge.fan_out.max))
            for edge in session.edges
            if edge.source == module.name and edge.target not in functions
        }
        for module in session.modules
    }


def _shares(session: InferenceSessionSpec) -> dict[str, dict[str, float]]:
    """For each module, the targets of its edges with a condition, with the share of the answers that they take."""
    return {
        module.name: {
            edge.target: 1.0 if edge.share is None else edge.share.fraction
            for edge in session.edges
            if edge.source == module.name and edge.when is not None
        }
        for module in session.modules
    }
