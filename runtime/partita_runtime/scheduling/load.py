"""How much is asked of the workers, and which batches are large enough to keep up with it."""

from collections.abc import Iterable
from math import inf

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState, StageState
from partita_runtime.scheduling.pools import WorkerPool


class PoolUser:
    """Whose batches the workers of a pool run."""

    __slots__ = ("module", "pipeline", "stage")

    def __init__(self, module: ModuleState, pipeline: PipelineState, stage: StageState) -> None:
        self.module = module
        self.pipeline = pipeline
        self.stage = stage

    def demand(self, now: int) -> float:
        """Workers kept busy by this stage, were all its batches of the planned size."""
        share = self.pipeline.throughput() / sum([p.throughput() for p in self.module.pipelines if p.eligible])
        b = self.pipeline.batch_size
        return self.module.rate.per_micro(now) * share * self.stage.latency[b - 1] / b


class _Share:
    """Workers, and all that they are shared by."""

    __slots__ = ("users", "workers")

    def __init__(self, users: list[PoolUser], workers: int) -> None:
        self.users = users
        self.workers = workers


class Load:
    """The arrival rates of all modules against what their workers can do."""

    def __init__(self, modules: Iterable[ModuleState]) -> None:
        self.users: dict[WorkerPool, PoolUser] = {
            stage.pool: PoolUser(module, pipeline, stage)
            for module in modules
            for pipeline in module.pipelines
            for stage in pipeline.stages
        }
        self._shares: dict[WorkerPool, _Share] = {}

    def workers_changed(self) -> None:
        """Workers came or went."""
        self._shares.clear()

    def sustainable_batch(self, pipeline: PipelineState, now: int) -> int:
        """The smallest batch size at which the pipeline, if all its batches were so small, would keep up.

        With N workers, arrival rate r and latency l(b) that is the least b with N b / l(b) >= r, at most the planned
        size; of workers that several modules share, N are those that the others leave, whose batches are taken to be as
        planned. The pipeline must be eligible.
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
        """Share of the workers, less those that others need, that would be busy if all batches were as planned."""
        share = self._shares.get(stage.pool)
        if share is None:
            share = self._shares[stage.pool] = self._share(stage)
        own, others = 0.0, 0.0
        for user in share.users:
            if user.stage is stage:
                own = user.demand(now)
            else:
                others += user.demand(now)
        return own / (share.workers - others) if others < share.workers else inf

    def _share(self, stage: StageState) -> "_Share":
        workers = dict.fromkeys(stage.pool)
        pools = dict.fromkeys([pool for worker in workers for pool in worker.pools])
        if len(pools) > 1:
            workers = dict.fromkeys([worker for pool in pools for worker in pool])
        users = [self.users[pool] for pool in pools]
        return _Share([user for user in users if user.pipeline.eligible], len(workers))
