"""A request as a DAG of sub-requests: what an answer spawns, which deadline each gets, and when all is done.

Pure state, used alike by the live frontend and the simulator. The driver runs what it is given (models through the
scheduling core, functions itself) and tells what came of it; payloads never come here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from partita_api.inferencesession import InferenceSessionSpec
from partita_runtime.scheduling.plan import SchedulingPlan


class SubRequest(NamedTuple):
    """One sample for a model, or one call of a function, on behalf of a request."""

    sub_id: int
    module: str
    deadline: int
    """When its answer must be there, so that the budgets downstream of it still fit (microseconds)."""
    parents: tuple[int, ...]
    """Sub-requests whose answers it works on: none for a root, one usually, all of them for a join."""
    sample: int
    """Which of the samples that its parent (or the client) gave to this module, from 0."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended."""

    request_id: int
    deadline: int
    results: tuple[SubRequest, ...]
    """The answered sub-requests of modules without downstream, by (module, index); empty if the request failed."""
    failed: SubRequest | None
    """The sub-request that could not be answered, if any."""


@dataclass(slots=True)
class _Request:
    """A request that is not finished."""

    request_id: int
    deadline: int
    pending: dict[str, int]
    """Unanswered sub-requests by module; a module without an entry has none."""
    open_upstreams: dict[str, int]
    """Upstream modules that may still spawn sub-requests, by module."""
    live: set[int] = field(default_factory=set)
    answered: dict[str, list[tuple[tuple[int, ...], SubRequest]]] = field(default_factory=dict)
    """By module: lineage (the sample numbers from the root) and sub-request."""
    failed: SubRequest | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    """One module as a node of the DAG."""

    is_function: bool
    upstreams: tuple[str, ...]
    targets: tuple[str, ...]
    fan_out: Mapping[str, int]
    """Most sub-requests of one answer, by model target."""

    @property
    def joins(self) -> bool:
        """Whether it runs once for all its upstream answers."""
        return self.is_function and len(self.upstreams) > 1


class RequestGraph:
    """All requests of one session in progress.

    A model gets the samples that upstream answers name for it, at most `fanOut.max` from one answer. A function with
    one upstream runs once for every upstream answer; a function with several (a join) runs once, when everything
    upstream of it is answered, even if that was nothing. A request fails with its first failed sub-request.
    """

    def __init__(self, session: InferenceSessionSpec, plan: SchedulingPlan) -> None:
        self._nodes = _nodes(session)
        self._order = tuple(self._nodes)
        self._session = session
        self._downstream = _downstream(session, plan)
        self._least = _least(session, plan)
        self._requests: dict[int, _Request] = {}
        self._subs: dict[int, tuple[_Request, SubRequest, tuple[int, ...]]] = {}
        self._next_sub_id = 0

    def switch_plan(self, plan: SchedulingPlan) -> None:
        """Deadlines of sub-requests that are spawned from now on follow the budgets of `plan`."""
        self._downstream = _downstream(self._session, plan)
        self._least = _least(self._session, plan)

    def start(self, request_id: int, deadline: int, root_samples: Mapping[str, int]) -> list[SubRequest]:
        """Take a request in; the sub-requests of its root modules, `root_samples` of each.

        Raises ValueError if the request is already in progress, or if `root_samples` names a module that is no root.
        """
        if request_id in self._requests:
            raise ValueError(f"request {request_id} is already in progress; give each request an id of its own")
        for module in root_samples:
            if module not in self._nodes or self._nodes[module].upstreams:
                raise ValueError(f"module {module!r} takes no samples from the client; only modules without edges do")
        request = _Request(request_id, deadline, {}, {name: len(node.upstreams) for name, node in self._nodes.items()})
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
        """A sub-request is answered; the sub-requests that this makes due.

        `children` says how many samples the answer holds for each downstream model (none if not named); downstream
        functions need no number. A sub-request that is unknown, or whose request failed, spawns nothing. Raises
        ValueError if `children` names a module that is no model downstream of this one.
        """
        if sub_id not in self._subs:
            return []
        request, sub, lineage = self._subs[sub_id]
        children = children or {}
        node = self._nodes[sub.module]
        for target in children:
            if target not in node.fan_out:
                raise ValueError(f"module {sub.module!r} has no edge to a model {target!r}")
        del self._subs[sub_id]
        request.live.discard(sub_id)
        request.answered.setdefault(sub.module, []).append((lineage, sub))
        spawned = []
        for target in node.targets:
            if not self._nodes[target].joins:
                count = min(children.get(target, 0), node.fan_out[target]) if target in node.fan_out else 1
                spawned += [self._spawn(request, target, (sub_id,), i, (*lineage, i)) for i in range(count)]
        request.pending[sub.module] -= 1
        if not request.pending[sub.module] and not request.open_upstreams[sub.module]:
            spawned += self._close(request, sub.module)
        return spawned

    def failed(self, sub_id: int) -> list[SubRequest]:
        """A sub-request will not be answered, so its request fails; the others of it, now pointless, to be cancelled.

        A sub-request that is unknown, or whose request failed before, cancels nothing.
        """
        if sub_id not in self._subs:
            return []
        request, sub, _ = self._subs[sub_id]
        request.failed = sub
        return [other for other in self._abandon(request) if other.sub_id != sub_id]

    def cancel(self, request_id: int) -> list[SubRequest]:
        """Forget a request whose client went away; its sub-requests, now pointless, to be cancelled."""
        request = self._requests.pop(request_id, None)
        return self._abandon(request) if request else []

    def request_of(self, sub_id: int) -> int | None:
        """The request that an unanswered sub-request belongs to; None if it is unknown or its request failed."""
        known = self._subs.get(sub_id)
        return known[0].request_id if known else None

    def in_vain(self, sub_id: int, now: int) -> bool:
        """Whether to begin with a sub-request at `now` (microseconds) can only be in vain.

        Its request has ended, or will be late even if nothing on its way has to wait any more: functions take what
        they declare (`maxMillis`), models what a batch of one takes on their fastest pipeline.
        """
        known = self._subs.get(sub_id)
        return known is None or now + self._least[known[1].module] > known[0].deadline

    def finished(self, request_id: int) -> RequestOutcome | None:
        """The outcome of a request that has ended, after which it is forgotten; None while it is in progress.

        Raises KeyError if the request is unknown.
        """
        request = self._requests[request_id]
        if request.live:
            return None
        del self._requests[request_id]
        results = [
            sub
            for module in self._order
            if not self._nodes[module].targets
            for _, sub in sorted(request.answered.get(module, ()))
        ]
        return RequestOutcome(request_id, request.deadline, () if request.failed else tuple(results), request.failed)

    def __len__(self) -> int:
        """Requests in progress, or ended and not yet asked for."""
        return len(self._requests)

    def _spawn(
        self, request: _Request, module: str, parents: tuple[int, ...], sample: int, lineage: tuple[int, ...]
    ) -> SubRequest:
        sub = SubRequest(self._next_sub_id, module, request.deadline - self._downstream[module], parents, sample)
        self._next_sub_id += 1
        self._subs[sub.sub_id] = (request, sub, lineage)
        request.live.add(sub.sub_id)
        request.pending[module] = request.pending.get(module, 0) + 1
        return sub

    def _close(self, request: _Request, module: str) -> list[SubRequest]:
        """Nothing more will come of `module`: joins behind it may run, and silent modules behind it close too."""
        spawned = []
        for target in self._nodes[module].targets:
            request.open_upstreams[target] -= 1
            if request.open_upstreams[target]:
                continue
            if self._nodes[target].joins:
                answers = [
                    sub.sub_id
                    for upstream in self._nodes[target].upstreams
                    for _, sub in sorted(request.answered.get(upstream, ()))
                ]
                spawned.append(self._spawn(request, target, tuple(answers), 0, (0,)))
            elif not request.pending.get(target):
                spawned += self._close(request, target)
        return spawned

    def _abandon(self, request: _Request) -> list[SubRequest]:
        abandoned = [self._subs.pop(sub_id)[1] for sub_id in sorted(request.live)]
        request.live.clear()
        return abandoned


def _nodes(session: InferenceSessionSpec) -> dict[str, _Node]:
    functions = {module.name for module in session.modules if module.function is not None}
    return {
        module.name: _Node(
            is_function=module.name in functions,
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
    """For each module, functions included, the longest sum of budgets after it (microseconds)."""
    return _longest_after(session, _functions(session) | {module.name: module.budget_micros for module in plan.modules})


def _least(session: InferenceSessionSpec, plan: SchedulingPlan) -> dict[str, int]:
    """For each module the shortest time (microseconds) that it and what comes after it take for one sample."""
    alone = {
        module.name: min((sum(s.latency_micros[0] for s in p.stages) for p in module.pipelines), default=0)
        for module in plan.modules
    }
    own = _functions(session) | alone
    return {name: own.get(name, 0) + after for name, after in _longest_after(session, own).items()}


def _functions(session: InferenceSessionSpec) -> dict[str, int]:
    return {module.name: module.function.max_millis * 1000 for module in session.modules if module.function}


def _longest_after(session: InferenceSessionSpec, times: Mapping[str, int]) -> dict[str, int]:
    """For each module the longest sum of `times` on a way through the modules after it."""
    longest: dict[str, int] = {}

    def after(name: str) -> int:
        if name not in longest:
            targets = (edge.target for edge in session.edges if edge.source == name)
            longest[name] = max((times.get(target, 0) + after(target) for target in targets), default=0)
        return longest[name]

    return {module.name: after(module.name) for module in session.modules}
