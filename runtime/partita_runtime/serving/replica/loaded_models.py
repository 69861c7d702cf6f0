"""The models that one vGPU of a sub-cluster has loaded. Loading one does not stop the others. Independent of Ray."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from partita_api.session.execution import weights_bytes
from partita_runtime.execution.build import warmed
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.shared_weights import SharedWeights
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.logs import concerning
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.replica.vgpu import Vgpu
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.transport.transport import TCP, Transport

logger = logging.getLogger(__name__)


class VgpuMemoryError(Exception):
    """The loaded models leave too little of the vGPU's memory."""


@dataclass(eq=False)
class LoadedModel:
    """A model in memory; the stages of several plans may use it."""

    build: StageBuild
    built: BuiltExecutor
    static_bytes: int
    dynamic_bytes: int


@dataclass(eq=False)
class _OpenStage:
    """One stage of one plan, which takes batches."""

    arguments: StageArguments
    loaded: LoadedModel
    worker: StageWorker
    announcement: Announcement


class LoadedModels:
    """Loads and unloads the models of a vGPU, one at a time; use it on one event loop."""

    def __init__(
        self,
        vgpu_id: str,
        node: str,
        host: str,
        warm: Callable[[StageBuild], BuiltExecutor] | None = None,
        transport: Transport = TCP,
    ) -> None:
        """`vgpu_id` is the schedulers' name of it; `warm` loads a model and runs it at every batch size.

        By default, models have the weights in memory once that they have in common.
        """
        self._vgpu_id = vgpu_id
        self._node = node
        self._host = host
        self._transport = transport
        self._warm = warm or partial(warmed, weights=SharedWeights())
        self._vgpu = Vgpu()
        self._stages: dict[str, _OpenStage] = {}
        self._problems: dict[str, str] = {}
        """Why stages are not loaded, by name."""
        self._changing = asyncio.Lock()

    @property
    def announcements(self) -> list[Announcement]:
        """The stages that take batches. The first one of each plan has a warning for each stage that does not."""
        firsts = {stage.arguments.plan: stage for stage in reversed(self._stages.values())}
        problems = tuple(self._problems.values())
        return [
            stage.announcement.model_copy(update={"warnings": stage.announcement.warnings + problems})
            if firsts[stage.arguments.plan] is stage
            else stage.announcement
            for stage in self._stages.values()
        ]

    def check_health(self) -> None:
        """Raises RuntimeError if no more batches will be run."""
        self._vgpu.check_health()

    async def load(self, desired: Sequence[StageArguments], memory_bytes: int | None) -> None:
        """Load exactly these stages; `memory_bytes` is the vGPU's memory, if it is known.

        First it unloads the stages that are no longer needed, each once its frontends have disconnected. Then it
        loads the missing stages one after the other; the loaded ones serve meanwhile. A stage that cannot be loaded
        does not affect the others: `announcements` say why. Raises its error only if no stage is loaded.
        """
        async with self._changing:
            self._vgpu.start()
            by_name = {_name(arguments): arguments for arguments in desired}
            self._problems = {}
            for name in [name for name, stage in self._stages.items() if by_name.get(name) != stage.arguments]:
                await self._unload(name)
            first: Exception | None = None
            for name, arguments in by_name.items():
                if name in self._stages:
                    continue
                try:
                    self._stages[name] = await self._open(name, arguments, memory_bytes)
                except Exception as error:
                    first = first or error
                    logger.exception("%s cannot be loaded", name, extra=concerning(plan=arguments.plan))
                    self._problems[name] = (
                        f"on the same vGPU, {arguments.module} of {arguments.plan} is not loaded: {error}"
                    )
            if first is not None and not self._stages:
                raise first

    async def close(self) -> None:
        """Take no more batches; returns once all frontends have their answers and have disconnected."""
        async with self._changing:
            for name in [*self._stages]:
                await self._unload(name)
            self._vgpu.stop()

    async def stop(self) -> None:
        """Close everything at once."""
        self._vgpu.stop()
        for stage in self._stages.values():
            await stage.worker.stop()

    async def _unload(self, name: str) -> None:
        stage = self._stages.pop(name)
        await stage.worker.drain()
        await stage.worker.stop()

    async def _open(self, name: str, arguments: StageArguments, memory_bytes: int | None) -> _OpenStage:
        loaded = await self._model_for(arguments, memory_bytes)
        worker = StageWorker(loaded.built, arguments.build.max_batch, self._vgpu, self._transport)
        address = await worker.start(self._host)
        announcement = Announcement(
            replica=f"{self._vgpu_id}/{name}",
            session_key=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            node=self._node,
            address=address,
            profile=arguments.profile,
            partition=loaded.built.partition,
            warnings=loaded.built.warnings,
            any_size=loaded.built.any_size,
            vgpu=self._vgpu_id,
        )
        return _OpenStage(arguments, loaded, worker, announcement)

    async def _model_for(self, arguments: StageArguments, memory_bytes: int | None) -> LoadedModel:
        """The stage's model, which may be loaded already. Raises VgpuMemoryError if it does not fit."""
        there = [*dict.fromkeys(stage.loaded for stage in self._stages.values())]
        for loaded in there:
            if covers(loaded.build, arguments.build):
                return loaded
        check_memory(arguments, there, memory_bytes)
        built = await asyncio.to_thread(self._warm, arguments.build)
        for warning in built.warnings:
            logger.warning("%s", warning)
        return LoadedModel(arguments.build, built, arguments.static_bytes, arguments.dynamic_bytes)


def covers(there: StageBuild, required: StageBuild) -> bool:
    """Whether a loaded model can run another stage: they differ at most in a smaller maximum batch of that stage."""
    if there.max_batch < required.max_batch:
        return False
    emulation = there.emulation
    if emulation is not None:
        emulation = emulation.model_copy(update={"latency_micros": emulation.latency_micros[: required.max_batch]})
    return there.model_copy(update={"max_batch": required.max_batch, "emulation": emulation}) == required


def check_memory(arguments: StageArguments, there: Sequence[LoadedModel], memory_bytes: int | None) -> None:
    """Raises VgpuMemoryError unless the model fits beside the loaded ones (Symphony, appendix A, equation 5).

    The memory needed is the static memory of all models plus the largest dynamic one: one model runs at a time. Weights
    that several models have in common count once.
    """
    if memory_bytes is None:
        return
    models = [(arguments.build, arguments.static_bytes), *((loaded.build, loaded.static_bytes) for loaded in there)]
    static = weights_bytes((build.weights or number, needed) for number, (build, needed) in enumerate(models))
    dynamic = max([arguments.dynamic_bytes, *(loaded.dynamic_bytes for loaded in there)])
    if static + dynamic > memory_bytes:
        raise VgpuMemoryError(
            f"with it the vGPU's {len(there) + 1} models need {static} bytes, and {dynamic} more for the largest "
            f"batch, of {memory_bytes}. It is loaded once models that no plan uses are unloaded. If that does not "
            "help, use fewer models for each sub-cluster, or smaller batches (planner.maxBatchSize)."
        )


def _name(arguments: StageArguments) -> str:
    return f"{arguments.plan}/{arguments.module}/{arguments.pipeline}/{arguments.stage}"
