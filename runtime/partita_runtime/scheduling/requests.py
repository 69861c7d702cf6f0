"""A request as a DAG of sub-requests: what an answer spawns, the deadline of each, and when the request is done.

Pure state, used by the live frontend and by the simulator. The driver runs the sub-requests (models through the
scheduling core, functions and endpoints itself) and reports how they ended; payloads are kept elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import longest_after, topological_order
from partita_api.session.module import Join
from partita_api.session.size_classes import size_classes
from partita_runtime.scheduling.plan import SchedulingPlan


class SubRequest(NamedTuple):
    """One sample for a model, or one call of a function, on behalf of a request."""

    sub_id: int
    module: str
    deadline: int
    """When it must be answered to leave the budgets of the modules after it (microseconds)."""
    parents: tuple[int, ...]
    """The sub-requests whose answers are its input: none for a root, all upstream ones for a join, else one."""
    sample: int
    """Position among the samples that its parent (or the client) gave to this module, from 0."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended."""

    request_id: int
    deadline: int
    results: tuple[SubRequest, ...]
    """The answered sub-requests of modules without downstream, by (module, index); empty if the request failed."""
    failed: SubRequest | None
    """The sub-request that failed, if any."""
    left_out: frozenset[str] = frozenset()
    """Modules of which an answer is missing: optional ones that failed, and those behind an edge with a condition that
    have no answer."""


Lineage = tuple[int, ...]
"""The sample numbers from the root to a sub-request."""


@dataclass(slots=True)
class _RequestState:
    """A request in progress."""

    request_id: int
    deadline: int
    pending: dict[str, int]
    """Number of unanswered sub-requests by module; none by default."""
    open_upstreams: dict[str, int]
    """Upstream modules that may still spawn sub-requests, by module."""
    live: set[int] = field(default_factory=set)
    answered: dict[str, list[tuple[Lineage, SubRequest]]] = field(default_factory=dict)
    """By module, in order of completion."""
    failed: SubRequest | None = None
    left_out: set[str] = field(default_factory=set)
    withheld: set[tuple[int, str]] = field(default_factory=set)
    """Answered sub-requests, each with a join that does not get the answer."""
    decided: set[str] = field(default_factory=set)
    """Modules with join First that have their answer."""
    unneeded: set[str] = field(default_factory=set)
    """Modules whose answers would go to decided or unneeded modules only."""

    def needs_no_more_for(self, module: str) -> bool:
        """Whether no further answer is wanted at a module."""
        return module in self.decided or module in self.unneeded


class _OpenSubRequest(NamedTuple):
    """A sub-request that is not answered."""

    request: _RequestState
    sub: SubRequest
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class _GraphNode:
    """One module as a node of the DAG."""

    is_function: bool
    is_optional: bool
    join: Join
    is_conditional: bool
    """Whether an edge to it has a condition."""
    upstreams: tuple[str, ...]
    targets: tuple[str, ...]
    fan_out: Mapping[str, int]
    """The most sub-requests of one answer, by target model."""

    @property
    def joins(self) -> bool:
        """Whether it runs once for all of its upstream answers."""
        return self.is_function and len(self.upstreams) > 1 and self.join is Join.ALL


class RequestGraph:
    """All requests of one session that are in progress.

    A model, or an endpoint, gets the samples that upstream answers hold for it, at most `fanOut.max` from one answer.
    A function with one upstream module runs once for every upstream answer. A function with several (a join) runs
    once, when everything upstream is answered, even if there was nothing to answer; with join Any, it runs for every
    answer, with join First for the first one. Answers that the condition of an edge withholds from a module create
    nothing there, and no join waits for them. A request fails with its first failed sub-request. The exception are
    optional modules: the request goes on without this answer. Modules are those of the session: the size class that
    serves a sample changes nothing here.
    """

    def __init__(self, session: InferenceSessionSpec, plan: SchedulingPlan) -> None:
        self._nodes = _nodes(session)
        self._order = tuple(self._nodes)
        self._upwards = topological_order(session)[::-1]
        self._conditional = tuple(name for name, node in self._nodes.items() if node.is_conditional)
        self._session = session
        self._downstream = _downstream(session, plan)
        self._least = _least(session, plan)
        self._requests: dict[int, _RequestState] = {}
        self._subs: dict[int, _OpenSubRequest] = {}
        self._superseded: list[SubRequest] = []
        self._next_sub_id = 0

    def switch_plan(self, plan: SchedulingPlan) -> None:
        """Use the budgets of `plan` for the deadlines of all sub-requests spawned from now on."""
        self._downstream = _downstream(self._session, plan)
        self._least = _least(self._session, plan)

    def start(self, request_id: int, deadline: int, root_samples: Mapping[str, int]) -> list[SubRequest]:
        """Start a request; returns the sub-requests of its root modules, `root_samples` of each.

        Raises ValueError if the request is already in progress, or if `root_samples` names a module that is not a root.
        """
        if request_id in self._requests:
            raise ValueError(f"request {request_id} is already in progress; give each request a unique id")
        for module in root_samples:
            if module not in self._nodes or self._nodes[module].upstreams:
                raise ValueError(f"module {module!r} takes no samples from the client; only modules without edges do")
        request = _RequestState(
            request_id, deadline, {}, {name: len(node.upstreams) for name, node in self._nodes.items()}
        )
        self._requests[request_id] = request
        spawned = [
            self._spawn(request, module, (), sample, (sample,))
            for module in self._order
            for sample in range(root_samples.get(module, 0))
        ]
        for module, node in self._nodes.items():
            if not node.upstreams and module not in request.pending:
                spawned += self._close(request, module)
        return spawned

    def completed(self, sub_id: int, children: Mapping[str, int] | None = None) -> list[SubRequest]:
        """A sub-request is answered; returns the sub-requests that become due.

        `children` is the number of samples that the answer holds for each downstream model (0 by default); of a
        downstream function, 0 if it does not get the answer (1 by default). A sub-request that is unknown, or whose
        request failed, spawns nothing. Raises ValueError if `children` names a module that is not directly after this
        one.
        """
        if sub_id not in self._subs:
            return []
        request, sub, lineage = self._subs[sub_id]
        children = children or {}
        node = self._nodes[sub.module]
        for target in children:
            if target not in node.targets:
                raise ValueError(f"module {sub.module!r} has no edge to {target!r}")
        del self._subs[sub_id]
        request.live.discard(sub_id)
        request.answered.setdefault(sub.module, []).append((lineage, sub))
        spawned = []
        for target in node.targets:
            if request.needs_no_more_for(target):
                continue
            most = node.fan_out.get(target, 1)
            count = min(children.get(target, 0 if target in node.fan_out else 1), most)
            if not self._nodes[target].joins:
                spawned += [self._spawn(request, target, (sub_id,), i, (*lineage, i)) for i in range(count)]
                if count and self._nodes[target].join is Join.FIRST:
                    self._decide(request, target)
            elif count == 0:
                request.withheld.add((sub_id, target))
        return spawned + self._settled(request, sub.module)

    def take_superseded(self) -> list[SubRequest]:
        """Sub-requests whose answers are not needed any more since `completed`, to be cancelled; each once."""
        taken, self._superseded = self._superseded, []
        return taken

    def is_optional(self, sub_id: int) -> bool:
        """Whether the request goes on without the answer of an unanswered sub-request."""
        known = self._subs.get(sub_id)
        return known is not None and self._nodes[known.sub.module].is_optional

    def left_out(self, sub_id: int) -> list[SubRequest]:
        """A sub-request of an optional module failed; returns the sub-requests that become due without its answer."""
        known = self._subs.pop(sub_id, None)
        if known is None:
            return []
        request, sub, _ = known
        request.live.discard(sub_id)
        request.left_out.add(sub.module)
        return self._settled(request, sub.module)

    def failed(self, sub_id: int) -> list[SubRequest]:
        """A sub-request failed, so its request fails; returns the other sub-requests of it, to be cancelled.

        Returns nothing for a sub-request that is unknown or whose request failed before.
        """
        if sub_id not in self._subs:
            return []
        request, sub, _ = self._subs[sub_id]
        request.failed = sub
        return [other for other in self._remove_live(request) if other.sub_id != sub_id]

    def cancel(self, request_id: int) -> list[SubRequest]:
        """Forget a request whose client is gone; returns its sub-requests, to be cancelled."""
        request = self._requests.pop(request_id, None)
        return self._remove_live(request) if request else []

    def request_of(self, sub_id: int) -> int | None:
        """The request of an unanswered sub-request; None if the sub-request is unknown or its request failed."""
        known = self._subs.get(sub_id)
        return known.request.request_id if known else None

    def cannot_be_in_time(self, sub_id: int, now: int) -> bool:
        """Whether it is useless to start a sub-request at `now` (microseconds).

        True if its request has ended or will be late even without waiting: functions and endpoints take their declared
        time (`maxMillis`), models the time of a batch of one on their fastest pipeline.
        """
        known = self._subs.get(sub_id)
        return known is None or now + self._least[known.sub.module] > known.request.deadline

    def finished(self, request_id: int) -> RequestOutcome | None:
        """Remove a request that has ended; returns its outcome, or None while it is in progress.

        Raises KeyError if the request is unknown.
        """
        if self._requests[request_id].live:
            return None
        outcome = self.so_far(request_id)
        del self._requests[request_id]
        return outcome

    def is_closed(self, request_id: int, module: str) -> bool:
        """Whether a module has all of its answers for a request in progress, or ended without some of them."""
        request = self._requests[request_id]
        return not request.pending.get(module) and not request.open_upstreams[module]

    def so_far(self, request_id: int) -> RequestOutcome:
        """The outcome of a request in progress if nothing else were answered: final for modules that are closed.

        Raises KeyError if the request is unknown.
        """
        request = self._requests[request_id]
        results = [
            sub
            for module in self._order
            if not self._nodes[module].targets
            for _, sub in sorted(request.answered.get(module, ()))
        ]
        answered = () if request.failed else tuple(results)
        left_out = request.left_out.union(name for name in self._conditional if name not in request.answered)
        return RequestOutcome(request_id, request.deadline, answered, request.failed, frozenset(left_out))

    def __len__(self) -> int:
        """Requests in progress, or ended and not yet removed by `finished`."""
        return len(self._requests)

    def _settled(self, request: _RequestState, module: str) -> list[SubRequest]:
        """One sub-request of `module` has ended; returns what becomes due if it was the last."""
        request.pending[module] -= 1
        if request.pending[module] or request.open_upstreams[module]:
            return []
        return self._close(request, module)

    def _spawn(
        self, request: _RequestState, module: str, parents: tuple[int, ...], sample: int, lineage: Lineage
    ) -> SubRequest:
        sub = SubRequest(self._next_sub_id, module, request.deadline - self._downstream[module], parents, sample)
        self._next_sub_id += 1
        self._subs[sub.sub_id] = _OpenSubRequest(request, sub, lineage)
        request.live.add(sub.sub_id)
        request.pending[module] = request.pending.get(module, 0) + 1
        return sub

    def _close(self, request: _RequestState, module: str) -> list[SubRequest]:
        """`module` gets no more sub-requests: joins after it may run, and modules after it without work close too."""
        spawned = []
        for target in self._nodes[module].targets:
            if request.needs_no_more_for(target):
                continue
            request.open_upstreams[target] -= 1
            if request.open_upstreams[target]:
                continue
            if self._nodes[target].joins:
                answers = [
                    sub.sub_id
                    for upstream in self._nodes[target].upstreams
                    for _, sub in sorted(request.answered.get(upstream, ()))
                    if (sub.sub_id, target) not in request.withheld
                ]
                spawned.append(self._spawn(request, target, tuple(answers), 0, (0,)))
            elif not request.pending.get(target):
                spawned += self._close(request, target)
        return spawned

    def _decide(self, request: _RequestState, first: str) -> None:
        """A module with join First has its answer: it gets no other one, and what would make one is not needed."""
        request.decided.add(first)
        request.open_upstreams[first] = 0
        for module in self._upwards:
            targets = self._nodes[module].targets
            if targets and all(map(request.needs_no_more_for, targets)):
                request.unneeded.add(module)
        for sub_id in sorted(request.live):
            if self._subs[sub_id].sub.module in request.unneeded:
                self._superseded.append(self._subs.pop(sub_id).sub)
                request.live.discard(sub_id)

    def _remove_live(self, request: _RequestState) -> list[SubRequest]:
        removed = [self._subs.pop(sub_id).sub for sub_id in sorted(request.live)]
        request.live.clear()
        return removed


def _nodes(session: InferenceSessionSpec) -> dict[str, _GraphNode]:
    functions = {module.name for module in session.modules if module.function is not None}
    return {
        module.name: _GraphNode(
            is_function=module.name in functions,
            is_optional=module.optional,
            join=module.join,
            is_conditional=any(edge.when is not None for edge in session.edges if edge.target == module.name),
            upstreams=tuple(edge.source for edge in session.edges if edge.target == module.name),
            targets=tuple(edge.target for edge in session.edges if edge.source == module.name),
            fan_out={
                edge.target: edge.fan_out.max
                for edge in session.edges
                if edge.source == module.name and edge.target not in functions
            },
        )
        for module in session.modules
    }


def _downstream(session: InferenceSessionSpec, plan: SchedulingPlan) -> dict[str, int]:
    """For each module, including functions and endpoints, the longest sum of budgets after it (microseconds)."""
    budgets = {module.name: module.budget_micros for module in plan.modules}
    return longest_after(session, _reserved(session) | _of_modules(session, budgets, max))


def _least(session: InferenceSessionSpec, plan: SchedulingPlan) -> dict[str, int]:
    """For each module, the shortest time (microseconds) of it and what must follow it, for one sample."""
    alone = {
        module.name: min((sum(s.latency_micros[0] for s in p.stages) for p in module.pipelines), default=0)
        for module in plan.modules
    }
    own = _reserved(session) | _of_modules(session, alone, min)
    needed = {module.name: own.get(module.name, 0) for module in session.modules if not module.optional}
    certain = session.model_copy(update={"edges": tuple(edge for edge in session.edges if edge.when is None)})
    return {name: own.get(name, 0) + after for name, after in longest_after(certain, needed).items()}


def _of_modules(
    session: InferenceSessionSpec, times: Mapping[str, int], choose: Callable[[Iterable[int]], int]
) -> dict[str, int]:
    """The times of the plan's modules by the session's modules; `choose` makes one of those of several size classes."""
    known = {
        module.name: [times[each.name] for each in size_classes(module) if each.name in times]
        for module in session.modules
    }
    return {name: choose(found) for name, found in known.items() if found}


def _reserved(session: InferenceSessionSpec) -> dict[str, int]:
    """The declared time (microseconds) of functions and endpoints."""
    return {m.name: m.reserved_millis * 1000 for m in session.modules if m.reserved_millis is not None}
