"""A dispatcher's scheduler where several frontends share their replicas: the rank decides.

Everything that the rank needs to know is kept here, too, so that one that was restarted can be told. While it is away
the batches that it granted are finished, and what arrives waits for it as long as its deadline allows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.central.coordinator_link import RankFinder, RankLink
from partita_runtime.serving.central.messages import Decided, Grant, RankMessage, Seated, TakeSeat, Told
from partita_runtime.serving.dispatch.scheduler import Alarm, CarryOut, now_micros
from partita_runtime.serving.transport.wire import MAX_REASON, WireError


@dataclass
class _Wanted:
    """A sub-request that somebody waits for."""

    module: str
    deadline: int
    batch_id: int | None = None
    """The batch that it is in; None while it waits for one."""


@dataclass
class _Held:
    """A batch that was granted and is not over."""

    dispatch: Dispatch
    stages_done: int = 0
    orphaned: bool = False
    """Whether the rank that granted it is gone, so that no other one knows of it."""


@dataclass
class _News:
    """What the rank was not told yet, as `Told` has it."""

    delays: tuple[int, int] | None = None
    joined: list[tuple[str, str, int, str, str]] = field(default_factory=list)
    busy: list[tuple[str, int]] = field(default_factory=list)
    arrived: list[tuple[int, str, int, int]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    completed: list[tuple[int, int, int, int | None]] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    draining: list[str] = field(default_factory=list)
    parted: list[tuple[str, str, int, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def message(self, sent: int) -> Told:
        """All of it."""
        return Told(
            sent=sent,
            delays=self.delays,
            joined=tuple(self.joined),
            busy=tuple(self.busy),
            arrived=tuple(self.arrived),
            cancelled=tuple(self.cancelled),
            completed=tuple(self.completed),
            failed=tuple(self.failed),
            draining=tuple(self.draining),
            parted=tuple(self.parted),
            left=tuple(self.left),
            lost=tuple(self.lost),
        )


class RankedScheduler:
    """Asks the rank, by one message a turn of the event loop (a `scheduler.Scheduler`)."""

    def __init__(self, finder: RankFinder, plan: SchedulingPlan, name: str, carry_out: CarryOut) -> None:
        self._plan = plan
        self._name = name
        self._carry_out = carry_out
        self._least = {module.name: _least_micros(plan, module.name) for module in plan.modules}
        self._executions = {ref: stage.latency_micros for ref, stage in plan.stages()}
        self._delays = (0, 0)
        self._workers: dict[str, dict[StageRef, str]] = {}
        """Workers that take batches: of which stages, and their node."""
        self._wanted: dict[int, _Wanted] = {}
        self._batches: dict[int, _Held] = {}
        self._next_batch = 0
        self._news = _News()
        self._last_moments: list[tuple[int, int]] = []
        """While the rank is away: a heap of when to give up on which sub-request."""
        self._seated = False
        self._alarm = Alarm(self._ring)
        self._link = RankLink(finder, self)

    @property
    def ready(self) -> bool:
        """Whether the rank is there."""
        return self._seated

    def now(self) -> int:
        """Now."""
        return now_micros()

    def wake(self) -> None:
        """Tell the rank, at the end of this turn of the event loop."""
        self._alarm.wake()

    def tick(self) -> None:
        """Say that this frontend is there."""
        self._link.tick()
        self.wake()

    def close(self) -> None:
        """Leave the rank."""
        self._alarm.silence()
        self._link.close()

    def signals(self) -> None:
        """The rank has the counters."""

    # What happens.

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """As the core's."""
        if self._delays != (ctrl_micros, per_request_micros):
            self._delays = self._news.delays = (ctrl_micros, per_request_micros)

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int) -> None:
        """As the core's."""
        self._workers.setdefault(worker, {})[stage] = node
        self._news.joined.append((*stage, worker, node))

    def worker_draining(self, worker: str, now: int) -> None:
        """As the core's."""
        self._workers.pop(worker, None)
        self._news.draining.append(worker)

    def worker_lost(self, worker: str, now: int) -> None:
        """This frontend cannot reach the worker any more, and tells of the batches that are lost by it."""
        self._workers.pop(worker, None)
        self._news.left.append(worker)

    def worker_busy(self, worker: str, until: int, now: int) -> None:
        """As the core's."""
        if self._seated and worker in self._workers:
            self._news.busy.append((worker, until))
            self.wake()

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None:
        """As the core's, for what this frontend sends."""
        self._workers.get(worker, {}).pop(stage, None)
        self._news.parted.append((*stage, worker))

    def arrive(self, request_id: int, module: str, deadline: int, now: int) -> None:
        """As the core's."""
        self._wanted[request_id] = _Wanted(module, deadline)
        self._wait(request_id, now)

    def cancel(self, request_id: int, now: int) -> None:
        """As the core's."""
        wanted = self._wanted.pop(request_id, None)
        if wanted is not None and not self._in_orphan(wanted):
            self._news.cancelled.append(request_id)
            self.wake()

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """As the core's."""
        held = self._batches.get(batch_id)
        if held is None:
            return
        held.stages_done = stage + 1
        if not held.orphaned:
            self._news.completed.append((batch_id, stage, now, took))
        if held.stages_done == len(held.dispatch.path):
            for request_id in self._end(held):
                del self._wanted[request_id]

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        """As the core's."""
        held = self._batches.get(batch_id)
        if held is not None:
            if not held.orphaned:
                self._news.failed.append((batch_id, reason[:MAX_REASON]))
            self._queue_again(held, now)

    def lost(self, batch_id: int, now: int) -> None:
        """As the core's."""
        held = self._batches.get(batch_id)
        if held is not None:
            if not held.orphaned:
                self._news.lost.append(batch_id)
            self._queue_again(held, now)

    def _queue_again(self, held: _Held, now: int) -> None:
        """A rank that granted the batch does so by itself; another one must be told of its requests."""
        for request_id in self._end(held):
            self._wanted[request_id].batch_id = None
            if held.orphaned:
                self._wait(request_id, now)

    def _end(self, held: _Held) -> list[int]:
        """Forget a batch; its requests that somebody still waits for."""
        batch_id = held.dispatch.batch_id
        del self._batches[batch_id]
        wanted = self._wanted
        return [r for r in held.dispatch.request_ids if r in wanted and wanted[r].batch_id == batch_id]

    def _wait(self, request_id: int, now: int) -> None:
        wanted = self._wanted[request_id]
        if self._seated:
            self._news.arrived.append((request_id, wanted.module, wanted.deadline, now))
        else:
            heappush(self._last_moments, (self._last_moment(wanted), request_id))
        self.wake()

    def _last_moment(self, wanted: _Wanted) -> int:
        return wanted.deadline - self._least.get(wanted.module, 0)

    def _in_orphan(self, wanted: _Wanted) -> bool:
        return wanted.batch_id is not None and self._batches[wanted.batch_id].orphaned

    # What the rank says (rank_link.RankListener).

    def introduction(self, token: str) -> TakeSeat:
        """Which plan batches are to be granted for."""
        return TakeSeat(token=token, seat=self._name, plan=self._plan, next_batch=self._next_batch)

    def heard(self, message: RankMessage) -> None:
        """The rank is there, or has decided."""
        match message:
            case Seated():
                self._take_seat()
            case Decided() if self._seated:
                self._carry_out([*self._drops(message), *map(self._granted, message.grants)], message.due, message.late)
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def away(self) -> None:
        """The rank is away: what it granted is finished without it."""
        self._seated = False
        self._news = _News()
        for held in self._batches.values():
            held.orphaned = True
        self._last_moments = [(self._last_moment(w), r) for r, w in self._wanted.items() if w.batch_id is None]
        heapify(self._last_moments)
        self.wake()

    def _take_seat(self) -> None:
        """Tell a rank that knows nothing how things are."""
        now = now_micros()
        self._seated = True
        self._last_moments = []
        self._news = _News(
            delays=self._delays,
            joined=[(*stage, worker, node) for worker, held in self._workers.items() for stage, node in held.items()],
            busy=sorted(self._busy(), key=lambda busy: busy[1]),
            arrived=[(r, w.module, w.deadline, now) for r, w in self._wanted.items() if w.batch_id is None],
        )
        self.wake()

    def _busy(self) -> Iterable[tuple[str, int]]:
        """Until when workers are needed for batches of a rank that is gone."""
        for held in self._batches.values():
            dispatch = held.dispatch
            size = len(dispatch.request_ids)
            for stage in range(held.stages_done, len(dispatch.path)):
                latency = self._executions[StageRef(dispatch.module, dispatch.pipeline, stage)][size - 1]
                yield dispatch.path[stage], dispatch.starts[stage] + latency

    def _granted(self, grant: Grant) -> Dispatch:
        dispatch = Dispatch(
            self._next_batch,
            grant.module,
            grant.pipeline,
            grant.request_ids,
            grant.path,
            grant.starts,
            grant.finish,
            grant.deadline,
            grant.transfer_starts,
        )
        self._next_batch += 1
        self._batches[dispatch.batch_id] = _Held(dispatch)
        for request_id in grant.request_ids:
            if request_id in self._wanted:
                self._wanted[request_id].batch_id = dispatch.batch_id
        return dispatch

    def _drops(self, decided: Decided) -> list[Action]:
        drops = [Drop(*drop) for drop in decided.drops if self._wanted.pop(drop[0], None) is not None]
        return [*drops]

    def _ring(self, _due: int) -> int | None:
        now = now_micros()
        if self._seated:
            news, self._news = self._news, _News()
            self._link.send(news.message(now))
            return None
        return self._give_up(now)

    def _give_up(self, now: int) -> int | None:
        """Drop what cannot wait for the rank any longer; when to look again."""
        drops = []
        moments = self._last_moments
        while moments and moments[0][0] < now:
            request_id = heappop(moments)[1]
            wanted = self._wanted.get(request_id)
            if wanted is not None and wanted.batch_id is None:
                del self._wanted[request_id]
                drops.append(Drop(request_id, wanted.module, DropReason.NO_COORDINATOR))
        if drops:
            self._carry_out(drops, now, 0)
        return moments[0][0] + 1 if moments else None


def _least_micros(plan: SchedulingPlan, name: str) -> int:
    """The shortest time in which the profile has a request of a module served."""
    (module,) = [module for module in plan.modules if module.name == name]
    return min((sum(s.latency_micros[0] for s in p.stages) for p in module.pipelines), default=0)
