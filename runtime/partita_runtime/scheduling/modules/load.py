"""The load of the workers, and which batches are large enough to keep up with it."""

from collections.abc import Iterable
from math import inf
from typing import Final

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState, StageState
from partita_runtime.scheduling.workers.pools import WorkerPool

_FRESH_MICROS: Final = 100_000
"""How long the last known demand of a module on shared workers counts before it is computed again."""


class PoolUser:
    """The stage whose batches the workers of a pool run."""

    __slots__ = ("last_demand", "module", "pipeline", "stage")

    def __init__(self, module: ModuleState, pipeline: PipelineState, stage: StageState) -> None:
        self.module = module
        self.pipeline = pipeline
        self.stage = stage
        self.last_demand = 0.0
        """Its demand when it was last computed."""

    def demand(self, now: int) -> float:
        """Workers that this stage keeps busy with batches of the planned size; its pipeline is eligible."""
        pipelines, b = self.module.pipelines, self.pipeline.batch_size
        busy = self.module.rate.per_micro(now) * self.stage.latency[b - 1] / b
        if len(pipelines) == 1:
            return busy
        return busy * self.pipeline.throughput() / sum([p.throughput() for p in pipelines if p.eligible])


class _Share:
    """A set of workers, and all stages that share them."""

    __slots__ = ("_summed", "_total", "users", "workers")

    def __init__(self, users: list[PoolUser], workers: int) -> None:
        self.users = users
        self.workers = workers
        self._summed = -_FRESH_MICROS
        """When the demands of all users were last added up."""
        self._total = 0.0
        """Sum of the last known demands of all users."""

    def left_by_others(self, user: PoolUser, own: float, now: int) -> float:
        """Workers that the other users leave to this one, whose demand is `own`."""
        if len(self.users) == 1:
            return self.workers
        if now - self._summed >= _FRESH_MICROS:
            self._summed = now
            self._total = 0.0
            for each in self.users:
                each.last_demand = each.demand(now)
                self._total += each.last_demand
        else:
            self._total += own - user.last_demand
            user.last_demand = own
        others = self._total - own
        return self.workers - others if others > 0 else self.workers


class Load:
    """The demand of all modules against the capacity of their workers."""

    def __init__(self, modules: Iterable[ModuleState]) -> None:
        self.users: dict[WorkerPool, PoolUser] = {
            stage.pool: PoolUser(module, pipeline, stage)
            for module in modules
            for pipeline in module.pipelines
            for stage in pipeline.stages
        }
        self._shares: dict[WorkerPool, _Share] = {}
        self._by_pools: dict[frozenset[WorkerPool], _Share] = {}
        """Pools that have all their workers in common have one share."""

    def workers_changed(self) -> None:
        """A worker joined or left."""
        self._shares.clear()
        self._by_pools.clear()

    def sustainable_batch(self, pipeline: PipelineState, now: int) -> int:
        """The smallest batch size with which the pipeline keeps up with its arrivals.

        With N workers, arrival rate r and latency l(b) this is the least b with N b / l(b) >= r, at most the planned
        size. If several modules share the workers, N is the number that the others leave, with batches of the planned
        size. The pipeline must be eligible.
        """
        planned = pipeline.batch_size
        stage = pipeline.stages[0]
        utilization = self._utilization(stage, now)
        for other in pipeline.stages[1:]:
            found = self._utilization(other, now)
            if found > utilization:
                utilization, stage = found, other
        latency = stage.latency
        needed = utilization * planned / latency[planned - 1]
        for b in range(1, planned):
            if b / latency[b - 1] >= needed:
                return b
        return planned

    def _utilization(self, stage: StageState, now: int) -> float:
        """Busy share of the workers that others leave, if all batches have the planned size."""
        share = self._shares.get(stage.pool)
        if share is None:
            share = self._shares[stage.pool] = self._share(stage)
        user = self.users[stage.pool]
        own = user.demand(now)
        left = share.left_by_others(user, own, now)
        return own / left if left > 0 else inf

    def _share(self, stage: StageState) -> "_Share":
        workers = dict.fromkeys(stage.pool)
        pools = dict.fromkeys([pool for worker in workers for pool in worker.pools])
        if len(pools) == 1:
            return _Share([self.users[stage.pool]], len(workers))
        share = self._by_pools.get(frozenset(pools))
        if share is None:
            workers = dict.fromkeys([worker for pool in pools for worker in pool])
            users = [self.users[pool] for pool in pools]
            share = _Share([user for user in users if user.pipeline.eligible], len(workers))
            self._by_pools[frozenset(pools)] = share
        return share
