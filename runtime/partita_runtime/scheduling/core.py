"""The scheduling core: one object that receives events and returns decisions."""

from heapq import heappop, heappush

from partita_runtime.scheduling.current_plan import CurrentPlan
from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched_batches import DispatchedBatch, DispatchedBatches, dispatch_of
from partita_runtime.scheduling.signals import CoreSignals, snapshot
from partita_runtime.scheduling.workers.free_index import NEVER
from partita_runtime.scheduling.workers.worker_registry import WorkerRegistry


class SchedulingCore:
    """Decides which requests form a batch, on which path of workers it runs, and when.

    A worker is one vGPU. The driver reports events (`arrive`, `completed`, `worker_joined`, ...), then calls `advance`
    and carries out the actions that it returns; it calls `advance` again at `next_wakeup`. All times are integer
    microseconds on one clock.
    """

    def __init__(self, plan: SchedulingPlan) -> None:
        """Raises ValueError if the plan names an unknown policy, as does `switch_plan`."""
        self._registry = WorkerRegistry()
        self._batches = DispatchedBatches()
        self._live: dict[object, QueuedRequest] = {}
        """The requests that wait or are in a batch."""
        self._pending_drops: list[Drop] = []
        """Drops that the next `advance` returns."""
        self._delays = (0, 0)
        self._stale_reports = 0
        self._clock = 0
        self._plan = CurrentPlan(plan, self._batches)

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Time from a dispatch until the first worker can start: ctrl + per_request * batch size (microseconds).

        Give a high percentile of the measured times (Symphony, Figure 18: d_ctrl + d_data * b). A stage whose report
        has not arrived `ctrl` after its reserved end counts as still running.
        """
        self._delays = (ctrl_micros, per_request_micros)
        self._batches.report_delay = ctrl_micros
        self._plan.set_delays(ctrl_micros, per_request_micros)
        self._plan.wake_all(self._clock)

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int, plan: str | None = None) -> None:
        """A worker is ready to run batches of a stage of the plan named `plan` (default: the current plan).

        Idempotent. A worker of another plan waits until `switch_plan` makes that plan the current one. A worker may
        join several stages (a vGPU with several loaded models): it still runs one batch at a time. A worker that was
        lost or draining and joins again is used again. Raises ValueError if the current plan has no such stage, or if
        the worker is known on another node.
        """
        current = self._plan
        is_current = plan is None or plan == current.name
        if is_current and stage not in current.stages:
            raise ValueError(f"plan {current.name!r} has no stage {stage}; name the plan that the worker is for")
        member = self._registry.join(plan or current.name, stage, worker, node, now)
        if is_current:
            current.stages[stage].pool.join(member)
            current.load.workers_changed()
            self._tick(now)
            current.wake([current.modules[stage.module]], self._clock)

    def worker_draining(self, worker: str, now: int) -> None:
        """The worker gets no new batches and finishes those it has. Unknown workers are ignored."""
        self._tick(now)
        if self._registry.drain(worker):
            self._plan.load.workers_changed()
            self._plan.wake_all(self._clock)

    def worker_lost(self, worker: str, now: int) -> None:
        """The worker is gone, and so are the batches that still need it.

        Their requests are queued again if their deadlines allow it; else the next `advance` drops them (WORKER_LOST).
        Unknown workers are ignored.
        """
        self._tick(now)
        lost = self._registry.lose(worker)
        if lost is None:
            return
        self._plan.load.workers_changed()
        affected = (self._batches.get(r.batch_id) for r in list(lost.reservations))
        for batch in dict.fromkeys(batch for batch in affected if batch is not None):
            self._batches.withdraw(batch, self._clock, lost)
            self._retry(batch, DropReason.WORKER_LOST)
        self._plan.wake_all(self._clock)

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None:
        """The worker gets no new batches of this stage, but keeps its other work. Unknown workers are ignored."""
        self._tick(now)
        current = self._plan
        member = self._registry.leave(current.name, stage, worker)
        if member is not None and stage in current.stages and current.stages[stage].pool in member.pools:
            current.stages[stage].pool.leave(member)
            current.load.workers_changed()
            current.wake_all(self._clock)

    def worker_busy(self, worker: str, until: int, now: int) -> None:
        """The worker is busy until a time with a batch of another scheduler. Idempotent; ignores unknown workers.

        Used when this core replaces another one whose batches still run.
        """
        self._tick(now)
        known = self._registry.workers.get(worker)
        if known is not None:
            self._batches.occupy(known, self._clock, until)

    def arrive(self, request_id: int, module: str, deadline: int, now: int, call: int | None = None) -> None:
        """A (sub-)request for `module`; `deadline` is the time by which this module must answer.

        `call` is the number of the client's call, the same in every module. Some policies keep the requests of a call
        together (`policies.query`). Without it, the request is a call of its own.

        Raises KeyError if the plan does not serve the module, ValueError if the core already has the request.
        """
        current = self._plan
        state = current.modules.get(module)
        if state is None:
            raise KeyError(f"plan {current.name!r} serves no module {module!r}")
        clock = self._clock if now < self._clock else now
        key: object = request_id
        request = QueuedRequest(deadline, key, clock, 0, module, call)
        if self._live.setdefault(key, request) is not request:
            raise ValueError(f"request {request_id} is already being served; give each request a unique id")
        self._clock = clock
        state.counters.arrived += 1
        state.rate.count(clock)
        state.queue.add(request)
        current.wake_ups.schedule(state, current.policies[state.order].arrived(state, request, clock))

    def cancel(self, request_id: int, now: int) -> None:
        """The client is gone: remove the request from the queue, or ignore its answer. Ignores unknown requests."""
        self._tick(now)
        request = self._live.pop(request_id, None)
        if request is None:
            return
        if request.waits:
            module = self._plan.modules[request.module]
            module.queue.remove(request)
            module.counters.cancelled += 1
            return
        batch = self._batches.get(request.batch_id)
        assert batch is not None
        batch.cancel(request_id)
        batch.module.counters.cancelled += 1

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """The batch left this stage at `now`, which replaces the reserved end.

        `took` is the execution time if the worker measured it (microseconds); else it is computed from the
        reservations. The last stage ends the batch. Unknown and repeated reports are ignored and counted.
        """
        self._tick(now)
        batch = self._batches.get(batch_id)
        if batch is None or not batch.progress <= stage < len(batch.workers):
            self._stale_reports += 1
            return
        as_reserved = now == batch.executions[stage].end
        late = self._batches.completed(batch, stage, now, took)
        if stage == len(batch.workers) - 1:
            self._count_answers(batch, now)
        if not as_reserved:  # else the modules that wait for the worker are due now anyway
            current = self._plan
            users = current.modules.values() if late else current.users(batch.workers[stage])
            current.wake_dependent(users, self._clock, batch.module)

    def transferred(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """The batch arrived from the stage before at `now`, which replaces the reserved end of its transfer.

        `took` is the time since it was sent, if that was measured (microseconds); else it was sent when reserved.
        Transfers within a node are ignored, as are reports after that of the stage. Unknown batches are ignored and
        counted.
        """
        self._tick(now)
        batch = self._batches.get(batch_id)
        if batch is None or not 0 < stage < len(batch.workers):
            self._stale_reports += 1
            return
        late = self._batches.transferred(batch, stage, now, took)
        if late:
            current = self._plan
            users = current.modules.values() if late > 0 else current.users(batch.workers[stage])
            current.wake_dependent(users, self._clock, batch.module)

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        """The execution of the batch failed; its workers are fine.

        Its requests are queued again, once, if their deadlines allow it; else the next `advance` drops them
        (EXECUTION_FAILED, with `reason` as detail). Unknown batches are ignored and counted.
        """
        self._tick(now)
        batch = self._batches.get(batch_id)
        if batch is None:
            self._stale_reports += 1
            return
        self._batches.withdraw(batch, self._clock, None)
        self._retry(batch, DropReason.EXECUTION_FAILED, reason)
        self._plan.wake_all(self._clock)

    def lost(self, batch_id: int, now: int) -> None:
        """The batch is lost between two workers, together with the worker that had completed it.

        Its requests are queued again if their deadlines allow it; else the next `advance` drops them (WORKER_LOST).
        Unknown batches are ignored.
        """
        self._tick(now)
        batch = self._batches.get(batch_id)
        if batch is not None:
            self._batches.withdraw(batch, self._clock, None)
            self._retry(batch, DropReason.WORKER_LOST)
            self._plan.wake_all(self._clock)

    def unreported(self, batch_id: int, now: int) -> None:
        """No report of the batch will come, as its frontend is gone; its requests must have been cancelled.

        Its workers may still execute it, so its reservations stay until their end. Unknown batches are ignored.
        """
        self._tick(now)
        batch = self._batches.get(batch_id)
        if batch is not None:
            self._batches.expect_no_report(batch)

    def switch_plan(self, plan: SchedulingPlan, now: int) -> None:
        """Make another plan the current one, between two batches.

        Queued requests move to it; those of modules that it lacks are dropped (NO_WORKERS). Dispatched batches finish
        on their workers. The plan gets the workers that joined for its name, and those of the old plan whose stage is
        the same in both: same StageRef, pool, blocks and vGPU divisor. The other workers get no more batches, but stay
        registered under the name of their plan, so a rollback finds them.
        """
        self._tick(now)
        former, current = self._plan, CurrentPlan(plan, self._batches)
        self._plan = current
        for module, request in current.take_over(former):
            self._pending_drops.append(self._drop(module, request, DropReason.NO_WORKERS))
        current.register_workers(self._registry)
        current.set_delays(*self._delays)
        for module in current.modules.values():
            for request in module.queue:
                current.queued(module, request, self._clock)
        current.wake_all(self._clock)

    def advance(self, now: int) -> list[Action]:
        """Everything that is due, in the order of the decisions.

        Of several possible batches the one that the policy finds most urgent comes first: by default the one with the
        earliest latest dispatch time (Symphony, Algorithm 1).
        """
        self._tick(now)
        now = self._clock
        current, batches = self._plan, self._batches
        if batches.extend_overdue(now):
            current.wake_dependent(current.modules.values(), now)
        actions: list[Action] = []
        if self._pending_drops:
            actions += self._pending_drops
            self._pending_drops.clear()
        considered = 0
        # (urgency, order of the module, number of the candidate, batches reserved before it, module, candidate)
        ready: list[tuple[int, int, int, int, ModuleState, Candidate]] = []
        wake_ups = current.wake_ups
        while True:
            while True:
                due = wake_ups.next_due(now)
                if due is None:
                    break
                candidate = self._consider(due, actions)
                if candidate is not None:
                    # The number makes entries unique: a module may have two, and modules cannot be compared.
                    considered += 1
                    heappush(ready, (candidate.urgency, due.order, considered, batches.count_reserved, due, candidate))
            if not ready:
                return actions
            _, _, _, reserved_before, module, candidate = heappop(ready)
            if reserved_before == batches.count_reserved:  # else its path may no longer be free
                actions.append(self._dispatch(module, candidate))
            if module.queue.waiting:
                wake_ups.schedule(module, now)

    def next_wakeup(self) -> int | None:
        """When to call `advance` if nothing happens before; None if no evaluation is scheduled."""
        if self._pending_drops:
            return self._clock
        at = self._plan.wake_ups.next_time()
        return None if at == NEVER else at

    def signals(self, now: int) -> CoreSignals:
        """Counters since the core was made, as of `now`, for the modules of the current plan."""
        current = self._plan
        return snapshot(now, current.name, current.modules.values(), self._registry.workers, self._stale_reports)

    def _tick(self, now: int) -> None:
        """Advance the clock; reports of earlier times take effect now."""
        if now > self._clock:
            self._clock = now

    def _consider(self, module: ModuleState, actions: list[Action]) -> Candidate | None:
        """The batch of `module` that can be dispatched now, if any; adds dropped requests to `actions`."""
        dropped: list[Dropped] = []
        current = self._plan
        candidate = current.policies[module.order].candidate(module, self._clock, dropped)
        for request, reason in dropped:
            actions.append(self._drop(module, request, reason))
        if candidate is not None:
            module.due = NEVER
        current.wake_ups.reschedule(module)
        return candidate

    def _dispatch(self, module: ModuleState, candidate: Candidate) -> Dispatch:
        pipeline, requests, path, preempted = candidate.pipeline, candidate.requests, candidate.path, candidate.preempts
        batch_size = len(requests)
        module.queue.remove_all(requests)
        if preempted is not None:
            self._batches.withdraw(preempted, self._clock, None)
            self._retry(preempted, DropReason.OVERLOAD)
        batch = self._batches.reserve(module, pipeline, path, requests)
        batch_id, queued = batch.batch_id, 0
        for request in requests:
            request.batch_id = batch_id
            queued += request.arrived
        counters = module.counters
        counters.queueing_micros += batch_size * self._clock - queued
        counters.dispatched += batch_size
        pipeline.counters.batch_sizes[batch_size] += 1
        current, legs = self._plan, path.legs
        if len(legs) > 1 and len(current.modules) > 1:
            current.wake_sharers(legs, self._clock)
        first = legs[0].worker
        if len(first.pools) > 1 and pipeline.stages[0].pool.index().has_become_short():
            current.wake_early(first, self._clock)
        return dispatch_of(batch, path, preempted)

    def _drop(self, module: ModuleState, request: QueuedRequest, reason: DropReason, detail: str = "") -> Drop:
        del self._live[request.key]
        module.counters.dropped[reason] += 1
        return Drop(request.request_id, module.name, reason, detail)

    def _retry(self, batch: DispatchedBatch, reason: DropReason, detail: str = "") -> None:
        """Queue the requests of a withdrawn batch again; drop those that would be late or failed before."""
        module = self._plan.modules.get(batch.module.name)
        failed = reason is DropReason.EXECUTION_FAILED
        for request in batch.live_requests():
            in_time = module is not None and self._clock + module.least_micros() <= request.deadline
            if module is None or not in_time or (failed and request.failures):
                self._pending_drops.append(self._drop(batch.module, request, reason, detail))
            else:
                if failed:
                    request = QueuedRequest(
                        request.deadline, request.key, request.arrived, request.failures + 1, module.name, request.call
                    )
                    self._live[request.key] = request
                module.queue.add(request)
                self._plan.queued(module, request, self._clock)

    def _count_answers(self, batch: DispatchedBatch, now: int) -> None:
        live = self._live
        if batch.cancelled is None and now <= batch.deadline:
            # Read all keys first: their memory was not used for long, and so is fetched at once.
            keys = [request.key for request in batch.requests]
            forget = live.__delitem__
            for key in keys:
                forget(key)
            answered = in_time = len(keys)
        else:
            requests = batch.live_requests()
            for request in requests:
                del live[request.key]
            answered, in_time = len(requests), len([request for request in requests if now <= request.deadline])
        batch.module.counters.in_time += in_time
        batch.pipeline.counters.in_time += in_time
        batch.module.counters.late += answered - in_time
        batch.pipeline.counters.late += answered - in_time
