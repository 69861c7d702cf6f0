"""How much is asked of the workers, and which batches are large enough to keep up with it."""

from collections.abc import Iterable
from typing import NamedTuple

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState, StageState
from partita_runtime.scheduling.pools import WorkerPool


class PoolUser(NamedTuple):
    """Whose batches the workers of a pool run."""

    module: ModuleState
    pipeline: PipelineState
    stage: StageState

    def demand(self, now: int) -> float:
        """Workers kept busy by this stage, were all its batches of the planned size."""
        share = self.pipeline.throughput() / sum(p.throughput() for p in self.module.pipelines if p.eligible)
        b = self.pipeline.batch_size
        return self.module.rate.per_micro(now) * share * self.stage.latency[b - 1] / b


class Load:
    """The arrival rates of all modules against what their workers can do."""

    def __init__(self, modules: Iterable[ModuleState]) -> None:
        self.users: dict[WorkerPool, PoolUser] = {
            stage.pool: PoolUser(module, pipeline, stage)
            for module in modules
            for pipeline in module.pipelines
            for stage in pipeline.stages
        }

    def sustainable_batch(self, pipeline: PipelineState, now: int) -> int:
        """The smallest batch size at which the pipeline, if all its batches were so small, would keep up.

        With N workers, arrival rate r and latency l(b) that is the least b with N b / l(b) >= r, at most the planned
        size; for workers that several modules share, r is this module's part. The pipeline must be eligible.
        """
        planned = pipeline.batch_size
        utilization, stage = max(
            ((self._utilization(stage, now), stage) for stage in pipeline.stages), key=lambda found: found[0]
        )
        latency = stage.latency
        needed = utilization * planned / latency[planned - 1]
        return next((b for b in range(1, planned) if b / latency[b - 1] >= needed), planned)

    def _utilization(self, stage: StageState, now: int) -> float:
        """Share of the stage's workers that would be busy if all batches, of all stages they serve, were as planned."""
        workers = list(stage.pool)
        pools = dict.fromkeys(pool for worker in workers for pool in worker.pools)
        if len(pools) > 1:
            workers = list(dict.fromkeys(worker for pool in pools for worker in pool))
        users = (self.users[pool] for pool in pools)
        return sum(user.demand(now) for user in users if user.pipeline.eligible) / len(workers)
