"""The plan that the core schedules for: its modules, their policies, and when each module is evaluated next."""

from collections.abc import Iterable

from partita_runtime.scheduling.modules.load import Load
from partita_runtime.scheduling.modules.module_state import ModuleState, module_states
from partita_runtime.scheduling.modules.wake_up_queue import WakeUpQueue
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.policy import Policy, PolicyContext
from partita_runtime.scheduling.policies.registry import make_policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched_batches import DispatchedBatches
from partita_runtime.scheduling.reservations.path_search import Leg
from partita_runtime.scheduling.workers.pools import Worker
from partita_runtime.scheduling.workers.worker_registry import WorkerRegistry


class CurrentPlan:
    """The state of the current plan; a plan switch replaces it."""

    __slots__ = ("load", "modules", "name", "policies", "stages", "wake_ups")

    def __init__(self, plan: SchedulingPlan, batches: DispatchedBatches) -> None:
        """Raises ValueError if the plan names an unknown policy."""
        self.name = plan.name
        self.modules = module_states(plan)
        self.load = Load(self.modules.values())
        context = PolicyContext(len(self.modules), self.load, batches)
        made: dict[str, Policy] = {name: make_policy(name, context) for name in plan.policies}
        self.policies = [made[module.policy or plan.policy] for module in plan.modules]
        """By `ModuleState.order`."""
        self.stages = {user.stage.ref: user.stage for user in self.load.users.values()}
        self.wake_ups = WakeUpQueue(list(self.modules.values()))

    def take_over(self, former: "CurrentPlan") -> list[tuple[ModuleState, QueuedRequest]]:
        """Continue with the requests, counters and workers of the former plan.

        Returns the requests of modules that this plan lacks.
        """
        left: list[tuple[ModuleState, QueuedRequest]] = []
        for name, module in former.modules.items():
            if name in self.modules:
                self.modules[name].take_over(module)
            else:
                left += [(module, request) for request in module.queue.take(len(module.queue))]
            for pipeline in module.pipelines:
                for stage in pipeline.stages:
                    stage.hand_over(self.stages.get(stage.ref))
        return left

    def register_workers(self, registry: WorkerRegistry) -> None:
        """Add the workers that joined for this plan before it became the current one."""
        for ref, stage in self.stages.items():
            for worker in registry.members(self.name, ref):
                stage.pool.join(worker)

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Change the time from a dispatch until the first worker can start (microseconds)."""
        for module in self.modules.values():
            for pipeline in module.pipelines:
                pipeline.set_delays(ctrl_micros, per_request_micros)

    def users(self, worker: Worker) -> list[ModuleState]:
        """The modules that may get batches onto a worker; a module may appear twice."""
        users = self.load.users
        return [users[pool].module for pool in worker.pools]

    def queued(self, module: ModuleState, request: QueuedRequest, now: int) -> None:
        """Schedule the evaluation of a module whose queue a request has just joined."""
        self.wake_ups.schedule(module, self.policies[module.order].arrived(module, request, now))

    def wake(self, modules: Iterable[ModuleState], now: int) -> None:
        """Evaluate those of the modules that have waiting requests in the next `advance`."""
        for module in modules:
            if module.queue.waiting:
                self.wake_ups.schedule(module, now)

    def wake_all(self, now: int) -> None:
        """Evaluate all modules that have waiting requests in the next `advance`."""
        self.wake(self.modules.values(), now)

    def wake_dependent(self, modules: Iterable[ModuleState], now: int, corrected: ModuleState | None = None) -> None:
        """Evaluate those of the modules whose next batch may change because a reservation ended at another time.

        The latencies of a `corrected` module may have changed, so it is always evaluated if it is one of them.
        """
        policies = self.policies
        self.wake([m for m in modules if m is corrected or policies[m.order].depends_on_reservations(m)], now)

    def wake_early(self, worker: Worker, now: int) -> None:
        """Few workers are idle: evaluate the modules of a worker that may dispatch early now."""
        for module in self.users(worker):
            early = self.policies[module.order].early_micros(module)
            if early and module.due - early <= now:
                self.wake_ups.schedule(module, now)

    def wake_sharers(self, legs: list[Leg], now: int) -> None:
        """New reservations ahead may block other modules: evaluate those that share the path's workers and nodes."""
        for stage in range(1, len(legs)):
            leg = legs[stage]
            if leg.transfer_length:
                for worker in (*legs[stage - 1].worker.node.workers, *leg.worker.node.workers):
                    self.wake(self.users(worker), now)
            else:
                self.wake(self.users(leg.worker), now)
