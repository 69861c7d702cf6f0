"""One plan's replicas shared by several frontends: one scheduling core, in which each has queues of its own. Pure.

A frontend's share of a module is a module to the core, with the same pipelines on the same workers. So a batch always
belongs to one frontend, which has the tensors of all of it, and no worker is reserved twice.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.central.clock_offset import ClockOffset
from partita_runtime.serving.central.messages import Decided, Grant, TakeSeat, Told
from partita_runtime.serving.central.shared_signals import added, share_of, without_modules, without_workers


@dataclass(eq=False)
class _Seat:
    """One frontend; what it calls requests and batches, and what the core does."""

    name: str
    next_batch: int
    clock: ClockOffset = field(default_factory=ClockOffset)
    delays: tuple[int, int] = (0, 0)
    requests: dict[int, int] = field(default_factory=dict)
    """Ids in the core, by the frontend's."""
    batches: dict[int, int] = field(default_factory=dict)
    """Ids in the core, by the frontend's."""
    workers: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _Batch:
    """A batch in flight."""

    seat: _Seat
    stages: int
    request_ids: tuple[int, ...]
    """In the core."""


class SharedPlan:
    """The core of one plan, and the frontends that have a seat at it. `now` is on the rank's clock (microseconds)."""

    def __init__(self, plan: SchedulingPlan, now: int) -> None:
        self.plan = plan
        self._core = SchedulingCore(_shared(plan, ()))
        self._seats: dict[str, _Seat] = {}
        self._modules: dict[str, tuple[_Seat, str]] = {}
        """Whose share of which module it is, by its name in the core."""
        self._requests: dict[int, tuple[_Seat, int]] = {}
        """Requests in the core, by their ids there: whose they are, and what they are called there."""
        self._batches: dict[int, _Batch] = {}
        self._next_request = 0
        self._delays = (0, 0)
        self._past = without_modules(self._core.signals(now))
        """What frontends counted that have left."""

    def __len__(self) -> int:
        """How many frontends there are."""
        return len(self._seats)

    def __contains__(self, seat: str) -> bool:
        """Whether this frontend has a seat."""
        return seat in self._seats

    def enter(self, asked: TakeSeat, now: int) -> None:
        """A frontend takes its seat, with nothing waiting. Raises ValueError if the seat is taken."""
        if asked.seat in self._seats:
            raise ValueError(f"seat {asked.seat} is taken")
        self._seats[asked.seat] = _Seat(asked.seat, asked.next_batch)
        self._arrange(now)

    def leave(self, name: str, now: int) -> None:
        """A frontend is gone: nothing of what waited for it goes on, and its batches under way end as reserved."""
        seat = self._seats.pop(name)
        for request_id in seat.requests.values():
            self._core.cancel(request_id, now)
            del self._requests[request_id]
        for batch_id in seat.batches.values():
            self._core.unreported(batch_id, now)
            del self._batches[batch_id]
        for worker in [*seat.workers]:
            self._left(seat, worker, now)
        self._past = added(self._past, without_workers(share_of(self._core.signals(now), self._names_of(seat))))
        self._arrange(now)
        self._keep_delays()

    def tell(self, name: str, told: Told, now: int) -> None:
        """Take in what happened at a frontend. Raises ValueError or KeyError for what cannot be."""
        seat, core = self._seats[name], self._core
        seat.clock.observe(told.sent, now)
        offset = seat.clock.micros
        if told.delays is not None:
            seat.delays = told.delays
            self._keep_delays()
        for module, pipeline, stage, worker, node in told.joined:
            core.worker_joined(StageRef(_share(module, seat), pipeline, stage), worker, node, now)
            seat.workers.add(worker)
        for worker, until in told.busy:
            core.worker_busy(worker, until + offset, now)
        for request_id, module, deadline, at in told.arrived:
            self._arrived(seat, request_id, module, deadline + offset, at + offset)
        for request_id in told.cancelled:
            if request_id in seat.requests:
                known = seat.requests.pop(request_id)
                del self._requests[known]
                core.cancel(known, now)
        for batch_id, stage, at, took in told.completed:
            self._completed(seat, batch_id, stage, at + offset, took)
        for batch_id, reason in told.failed:
            if batch_id in seat.batches:
                core.failed(self._end(seat, batch_id), now, reason)
        for worker in told.draining:
            core.worker_draining(worker, now)
        for module, pipeline, stage, worker in told.parted:
            core.worker_left(StageRef(_share(module, seat), pipeline, stage), worker, now)
        for worker in told.left:
            self._left(seat, worker, now)
        for batch_id in told.lost:
            if batch_id in seat.batches:
                core.lost(self._end(seat, batch_id), now)

    def advance(self, due: int, late: int = 0) -> dict[str, Decided]:
        """Everything that is due, by seat, as it is told there; `late` is by how many microseconds."""
        drops: defaultdict[_Seat, list[tuple[int, str, DropReason, str]]] = defaultdict(list)
        grants: defaultdict[_Seat, list[Grant]] = defaultdict(list)
        for action in self._core.advance(due):
            if isinstance(action, Drop):
                if action.request_id in self._requests:  # else it was cancelled in the meantime
                    seat, own_id = self._requests.pop(action.request_id)
                    del seat.requests[own_id]
                    drops[seat].append((own_id, self._modules[action.module][1], action.reason, action.detail))
            else:
                seat, module = self._modules[action.module]
                grants[seat].append(self._granted(seat, module, action))
        return {
            seat.name: Decided(
                due=due - seat.clock.micros, late=late, drops=tuple(drops[seat]), grants=tuple(grants[seat])
            )
            for seat in {**grants, **drops}
        }

    def next_wakeup(self) -> int | None:
        """When to call `advance` if nothing happens before."""
        return self._core.next_wakeup()

    @property
    def delay(self) -> int:
        """What the core allows for a batch's way (microseconds), whatever its size."""
        return self._delays[0]

    def signals(self, now: int) -> CoreSignals:
        """The counters of all frontends together, since the first one came."""
        whole = self._core.signals(now)
        shares = [share_of(whole, self._names_of(seat)) for seat in self._seats.values()]
        return reduce(added, shares, self._past)

    def _arrange(self, now: int) -> None:
        """As many shares of each module as there are frontends."""
        seats = [*self._seats.values()]
        self._modules = {_share(m.name, seat): (seat, m.name) for m in self.plan.modules for seat in seats}
        self._core.switch_plan(_shared(self.plan, seats), now)

    def _names_of(self, seat: _Seat) -> dict[str, str]:
        return {_share(module.name, seat): module.name for module in self.plan.modules}

    def _keep_delays(self) -> None:
        """Those of the frontend from which batches have the longest way."""
        delays = max((seat.delays for seat in self._seats.values()), default=(0, 0))
        if delays != self._delays:
            self._delays = delays
            self._core.set_delays(*delays)

    def _arrived(self, seat: _Seat, own_id: int, module: str, deadline: int, at: int) -> None:
        if own_id in seat.requests:
            raise ValueError(f"request {own_id} is there already")
        request_id = self._next_request
        self._next_request += 1
        self._core.arrive(request_id, _share(module, seat), deadline, at)
        seat.requests[own_id] = request_id
        self._requests[request_id] = (seat, own_id)

    def _granted(self, seat: _Seat, module: str, dispatch: Dispatch) -> Grant:
        seat.batches[seat.next_batch] = dispatch.batch_id
        seat.next_batch += 1
        self._batches[dispatch.batch_id] = _Batch(seat, len(dispatch.path), dispatch.request_ids)
        offset = seat.clock.micros
        return Grant(
            module=module,
            pipeline=dispatch.pipeline,
            request_ids=tuple([self._requests[r][1] for r in dispatch.request_ids]),
            path=dispatch.path,
            starts=tuple([start - offset for start in dispatch.starts]),
            finish=dispatch.finish - offset,
            deadline=dispatch.deadline - offset,
            transfer_starts=tuple([start - offset for start in dispatch.transfer_starts]),
        )

    def _completed(self, seat: _Seat, own_id: int, stage: int, at: int, took: int | None) -> None:
        known = seat.batches.get(own_id)
        if known is None:
            return
        batch = self._batches[known]
        self._core.completed(known, stage, at, took)
        if stage == batch.stages - 1:
            self._end(seat, own_id)
            for request_id in batch.request_ids:
                if request_id in self._requests:
                    _, own_request = self._requests.pop(request_id)
                    del seat.requests[own_request]

    def _end(self, seat: _Seat, own_id: int) -> int:
        known = seat.batches.pop(own_id)
        del self._batches[known]
        return known

    def _left(self, seat: _Seat, worker: str, now: int) -> None:
        seat.workers.discard(worker)
        if any(worker in other.workers for other in self._seats.values()):
            for module in self.plan.modules:
                for pipeline in module.pipelines:
                    for stage in range(len(pipeline.stages)):
                        self._core.worker_left(StageRef(_share(module.name, seat), pipeline.name, stage), worker, now)
        else:
            self._core.worker_lost(worker, now)


def _share(module: str, seat: _Seat) -> str:
    return f"{module}@{seat.name}"


def _shared(plan: SchedulingPlan, seats: "tuple[_Seat, ...] | list[_Seat]") -> SchedulingPlan:
    """The plan with a module for every frontend's share of each of its own."""
    modules = [module.model_copy(update={"name": _share(module.name, s)}) for module in plan.modules for s in seats]
    return plan.model_copy(update={"modules": tuple(modules)})
