"""The scheduling core: one object that takes events in and gives decisions out."""

from collections.abc import Iterable
from heapq import heappop, heappush

from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.modules import ModuleState, module_states
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.policies.registry import make_policy
from partita_runtime.scheduling.queues.agenda import Agenda
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched import Batch, InFlight, dispatched
from partita_runtime.scheduling.reservations.path_search import Leg
from partita_runtime.scheduling.signals import CoreSignals, snapshot
from partita_runtime.scheduling.workers.free_index import NEVER
from partita_runtime.scheduling.workers.load import Load
from partita_runtime.scheduling.workers.pools import Worker
from partita_runtime.scheduling.workers.registry import Roster


class SchedulingCore:
    """Decides who is batched with whom, on which path of workers, and when.

    The driver tells what happens (`arrive`, `completed`, `worker_joined`, ...), then calls `advance` and carries out
    what it answers; it calls `advance` again at `next_wakeup`. All times are integer microseconds on one clock.
    """

    def __init__(self, plan: SchedulingPlan) -> None:
        """Raises ValueError if the plan names a policy that there is not, as does `switch_plan`."""
        self._roster = Roster()
        self._flight = InFlight()
        self._live: dict[object, QueuedRequest] = {}
        """The requests that wait or are in a batch."""
        self._decided: list[Drop] = []
        """Drops that the next `advance` tells."""
        self._delays = (0, 0)
        self._stale_reports = 0
        self._clock = 0
        self._put_in_force(plan, {})

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Time from a dispatch until the first worker can start: ctrl + per_request * batch size.

        Give a high percentile of what is measured (Symphony, Figure 18: d_ctrl + d_data * b). A stage that is not
        reported `ctrl` after its reserved end is taken to run on.
        """
        self._delays = (ctrl_micros, per_request_micros)
        self._flight.report_delay = ctrl_micros
        self._apply_delays()
        self._look_at(self._modules.values())

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int, plan: str | None = None) -> None:
        """A worker is ready to run batches of a stage of the plan named `plan` (default: the plan in force).

        Idempotent. A worker of another plan waits until `switch_plan` puts that plan in force. One worker may join
        several stages (a vGPU with several models loaded): it still runs one batch at a time. A worker that was lost
        or draining and joins again is as good as new. Raises ValueError if the plan in force has no such stage, or if
        the worker is known on another node.
        """
        in_force = plan is None or plan == self._plan.name
        if in_force and stage not in self._stages:
            raise ValueError(f"plan {self._plan.name!r} has no stage {stage}; name the plan that the worker is for")
        member = self._roster.join(plan or self._plan.name, stage, worker, node, now)
        if in_force:
            self._stages[stage].pool.join(member)
            self._load.workers_changed()
            self._tick(now)
            self._look_at([self._modules[stage.module]])

    def worker_draining(self, worker: str, now: int) -> None:
        """The worker gets no new batches; those it has it finishes. Unknown workers are ignored."""
        self._tick(now)
        if self._roster.drain(worker):
            self._load.workers_changed()
            self._look_at(self._modules.values())

    def worker_lost(self, worker: str, now: int) -> None:
        """The worker is gone, with the batches that still need it.

        Their requests are queued again if their deadlines allow, else dropped (WORKER_LOST) by the next `advance`.
        Unknown workers are ignored.
        """
        self._tick(now)
        lost = self._roster.lose(worker)
        if lost is None:
            return
        self._load.workers_changed()
        hit = (self._flight.get(r.batch_id) for r in list(lost.reservations))
        for batch in dict.fromkeys(batch for batch in hit if batch is not None):
            self._flight.abandon(batch, self._clock, lost)
            self._retry(batch, DropReason.WORKER_LOST)
        self._look_at(self._modules.values())

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None:
        """The worker gets no new batches of this stage; whatever else it does goes on. Unknown ones are ignored."""
        self._tick(now)
        member = self._roster.leave(self._plan.name, stage, worker)
        if member is not None and stage in self._stages and self._stages[stage].pool in member.pools:
            self._stages[stage].pool.leave(member)
            self._load.workers_changed()
            self._look_at(self._modules.values())

    def worker_busy(self, worker: str, until: int, now: int) -> None:
        """The worker is busy until then with a batch that is not the core's. Idempotent; unknown workers are ignored.

        So it is where a core takes over from one that is gone, with the batches of that one still under way.
        """
        self._tick(now)
        known = self._roster.workers.get(worker)
        if known is not None:
            self._flight.occupy(known, self._clock, until)

    def arrive(self, request_id: int, module: str, deadline: int, now: int) -> None:
        """A (sub-)request for `module`; `deadline` is for this module's answer.

        Raises KeyError if the plan does not serve the module, ValueError if the request is already in the core.
        """
        state = self._modules.get(module)
        if state is None:
            raise KeyError(f"plan {self._plan.name!r} serves no module {module!r}")
        clock = self._clock if now < self._clock else now
        key: object = request_id
        request = QueuedRequest(deadline, key, clock, 0, module)
        if self._live.setdefault(key, request) is not request:
            raise ValueError(f"request {request_id} is already being served; give each request an id of its own")
        self._clock = clock
        state.counters.arrived += 1
        state.rate.count(clock)
        state.queue.add(request)
        self._agenda.look(state, self._policies[state.order].arrived(state, request, clock))

    def cancel(self, request_id: int, now: int) -> None:
        """Nobody waits for the request any more: it is taken from the queue, or its answer no longer counts.

        Unknown requests are ignored.
        """
        self._tick(now)
        request = self._live.pop(request_id, None)
        if request is None:
            return
        if request.waits:
            module = self._modules[request.module]
            module.queue.remove(request)
            module.counters.cancelled += 1
            return
        batch = self._flight.get(request.batch_id)
        assert batch is not None
        batch.cancel(request_id)
        batch.module.counters.cancelled += 1

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """Feedback: the batch really left this stage at `now`, which replaces what was reserved.

        `took` is the execution time, if the worker measured it (microseconds); else it is reckoned from the
        reservations. The last stage ends the batch. Reports that are unknown or come twice are ignored and counted.
        """
        self._tick(now)
        batch = self._flight.get(batch_id)
        if batch is None or not batch.progress <= stage < len(batch.workers):
            self._stale_reports += 1
            return
        as_reserved = now == batch.executions[stage].end
        late = self._flight.completed(batch, stage, now, took)
        if stage == len(batch.workers) - 1:
            self._count_answers(batch, now)
        if not as_reserved:  # else whoever waits for the worker is due now anyway
            own = batch.module  # whose latencies may have been corrected
            users = self._modules.values() if late else self._users(batch.workers[stage])
            self._look_at([module for module in users if module is own or module.minds_others])

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        """The batch could not be executed; its workers live.

        Its requests are queued again, once, if their deadlines allow; else they are dropped (EXECUTION_FAILED, with
        `reason` as detail) by the next `advance`. Unknown batches are ignored and counted.
        """
        self._tick(now)
        batch = self._flight.get(batch_id)
        if batch is None:
            self._stale_reports += 1
            return
        self._flight.abandon(batch, self._clock, None)
        self._retry(batch, DropReason.EXECUTION_FAILED, reason)
        self._look_at(self._modules.values())

    def lost(self, batch_id: int, now: int) -> None:
        """The batch is lost on its way between two workers, with one that had already completed it.

        Its requests are queued again if their deadlines allow, else dropped (WORKER_LOST) by the next `advance`.
        Unknown batches are ignored.
        """
        self._tick(now)
        batch = self._flight.get(batch_id)
        if batch is not None:
            self._flight.abandon(batch, self._clock, None)
            self._retry(batch, DropReason.WORKER_LOST)
            self._look_at(self._modules.values())

    def forsaken(self, batch_id: int, now: int) -> None:
        """Nobody waits for the batch any more, and nobody will report it; its requests must have been cancelled.

        Its workers may execute it all the same, so what it has reserved stays reserved until its end. Unknown batches
        are ignored.
        """
        self._tick(now)
        batch = self._flight.get(batch_id)
        if batch is not None:
            self._flight.forsake(batch)

    def switch_plan(self, plan: SchedulingPlan, now: int) -> None:
        """Put another plan in force, between two batches.

        Queued requests move to it (modules that it lacks: dropped, NO_WORKERS); batches in flight finish where they
        are. Its workers are those that joined for its name, and those of the old plan whose stage is the same in
        both: same StageRef, pool, blocks and vGPU divisor. The others get no more batches, but are remembered under
        their plan's name, so that a rollback finds them.
        """
        self._tick(now)
        self._put_in_force(plan, self._modules)
        self._look_at(self._modules.values())

    def advance(self, now: int) -> list[Action]:
        """Everything that is due, in the order in which it was decided.

        Of several batches that could go, the one that the policy finds most urgent goes first: by default the one
        whose latest moment is closest (Symphony, Algorithm 1).
        """
        self._tick(now)
        now = self._clock
        if self._flight.catch_up(now):
            self._look_at([module for module in self._modules.values() if module.minds_others])
        actions: list[Action] = []
        if self._decided:
            actions += self._decided
            self._decided.clear()
        considered = 0
        ready: list[tuple[int, int, int, int, ModuleState, Candidate]] = []
        agenda, flight = self._agenda, self._flight
        while True:
            while True:
                due = agenda.next_due(now)
                if due is None:
                    break
                candidate = self._consider(due, actions)
                if candidate is not None:
                    # A module may be there twice, so what has no order must not be compared.
                    considered += 1
                    heappush(ready, (candidate.urgency, due.order, considered, flight.reserved, due, candidate))
            if not ready:
                return actions
            _, _, _, reserved, module, candidate = heappop(ready)
            if reserved == flight.reserved:
                actions.append(self._dispatch(module, candidate))
            if module.queue.waiting:
                agenda.look(module, now)

    def next_wakeup(self) -> int | None:
        """When `advance` should be called if nothing happens before; None if nothing is waited for."""
        if self._decided:
            return self._clock
        at = self._agenda.next_time()
        return None if at == NEVER else at

    def signals(self, now: int) -> CoreSignals:
        """Counters since the core was made, as of `now`; those of modules that the plan lacks are left out."""
        return snapshot(now, self._plan.name, self._modules.values(), self._roster.workers, self._stale_reports)

    def _tick(self, now: int) -> None:
        """Time does not run backwards: what is told of earlier moments takes effect now."""
        if now > self._clock:
            self._clock = now

    def _look_at(self, modules: Iterable[ModuleState]) -> None:
        """Look at these modules, if anything waits there, in the next `advance`."""
        for module in modules:
            if module.queue.waiting:
                self._agenda.look(module, self._clock)

    def _users(self, worker: Worker) -> list[ModuleState]:
        """The modules that may get batches onto a worker; a module may be there twice."""
        users = self._load.users
        return [users[pool].module for pool in worker.pools]

    def _consider(self, module: ModuleState, actions: list[Action]) -> Candidate | None:
        """The batch of `module` that could go now, if any; what is dropped on the way joins `actions`."""
        dropped: list[Dropped] = []
        candidate = self._policies[module.order].candidate(module, self._clock, dropped)
        for request, reason in dropped:
            actions.append(self._drop(module, request, reason))
        if candidate is not None:
            module.due = NEVER
        self._agenda.settle(module)
        return candidate

    def _dispatch(self, module: ModuleState, candidate: Candidate) -> Dispatch:
        pipeline, requests, path, preempted = candidate.pipeline, candidate.requests, candidate.path, candidate.preempts
        batch_size = len(requests)
        module.queue.remove_all(requests)
        if preempted is not None:
            self._flight.abandon(preempted, self._clock, None)
            self._retry(preempted, DropReason.OVERLOAD)
        batch = self._flight.reserve(module, pipeline, path, requests)
        batch_id, queued = batch.batch_id, 0
        for request in requests:
            request.batch_id = batch_id
            queued += request.arrived
        counters = module.counters
        counters.queueing_micros += batch_size * self._clock - queued
        counters.dispatched += batch_size
        pipeline.counters.batch_sizes[batch_size] += 1
        legs = path.legs
        if len(legs) > 1 and len(self._modules) > 1:
            self._look_at_sharers(legs)
        first = legs[0].worker
        if len(first.pools) > 1 and pipeline.stages[0].pool.row().has_become_short():
            self._look_at_early(first)
        return dispatched(batch, path, preempted)

    def _look_at_early(self, worker: Worker) -> None:
        """Whoever may go early where few workers are idle."""
        for module in self._users(worker):
            if module.early and module.due - module.early <= self._clock:
                self._agenda.look(module, self._clock)

    def _look_at_sharers(self, legs: list[Leg]) -> None:
        """What is reserved ahead may be in the way of other modules: of those of its workers, and of its nodes."""
        for stage in range(1, len(legs)):
            leg = legs[stage]
            if leg.transfer_length:
                for worker in (*legs[stage - 1].worker.node.workers, *leg.worker.node.workers):
                    self._look_at(self._users(worker))
            else:
                self._look_at(self._users(leg.worker))

    def _drop(self, module: ModuleState, request: QueuedRequest, reason: DropReason, detail: str = "") -> Drop:
        del self._live[request.key]
        module.counters.dropped[reason] += 1
        return Drop(request.request_id, module.name, reason, detail)

    def _retry(self, batch: Batch, reason: DropReason, detail: str = "") -> None:
        """Queue the requests of an abandoned batch again, or drop them if that is pointless."""
        module = self._modules.get(batch.module.name)
        failed = reason is DropReason.EXECUTION_FAILED
        for request in batch.wanted():
            in_time = module is not None and self._clock + module.least_micros() <= request.deadline
            if module is None or not in_time or (failed and request.failures):
                self._decided.append(self._drop(batch.module, request, reason, detail))
            else:
                if failed:
                    request = QueuedRequest(
                        request.deadline, request.key, request.arrived, request.failures + 1, module.name
                    )
                    self._live[request.key] = request
                module.queue.add(request)
                self._agenda.look(module, self._policies[module.order].arrived(module, request, self._clock))

    def _count_answers(self, batch: Batch, now: int) -> None:
        live = self._live
        if batch.cancelled is None and now <= batch.deadline:
            # All keys first: they lie in memory that was not used for long, and so are fetched all at once.
            keys = [request.key for request in batch.requests]
            forget = live.__delitem__
            for key in keys:
                forget(key)
            answered = in_time = len(keys)
        else:
            requests = batch.wanted()
            for request in requests:
                del live[request.key]
            answered, in_time = len(requests), len([request for request in requests if now <= request.deadline])
        batch.module.counters.in_time += in_time
        batch.pipeline.counters.in_time += in_time
        batch.module.counters.late += answered - in_time
        batch.pipeline.counters.late += answered - in_time

    def _put_in_force(self, plan: SchedulingPlan, former: dict[str, ModuleState]) -> None:
        """Build the state of `plan`, going on with whatever it has in common with the modules in force before."""
        modules = module_states(plan)
        load = Load(modules.values())
        made = {name: make_policy(name, load, self._flight) for name in plan.policies}
        self._policies = [made[module.policy or plan.policy] for module in plan.modules]
        self._plan, self._modules, self._load = plan, modules, load
        self._stages = {user.stage.ref: user.stage for user in self._load.users.values()}
        self._agenda = Agenda(list(modules.values()))
        for name, old in former.items():
            if name in self._modules:
                self._modules[name].take_over(old)
            else:
                left = old.queue.take(len(old.queue))
                self._decided += [self._drop(old, request, DropReason.NO_WORKERS) for request in left]
            for pipeline in old.pipelines:
                for stage in pipeline.stages:
                    stage.hand_over(self._stages.get(stage.ref))
        for ref, stage in self._stages.items():
            for worker in self._roster.members(plan.name, ref):
                stage.pool.join(worker)
        self._apply_delays()
        for module in self._modules.values():
            for request in module.queue:
                self._agenda.look(module, self._policies[module.order].arrived(module, request, self._clock))

    def _apply_delays(self) -> None:
        for module in self._modules.values():
            for pipeline in module.pipelines:
                pipeline.set_delays(*self._delays)
