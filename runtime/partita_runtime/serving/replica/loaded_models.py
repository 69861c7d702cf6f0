"""The models that one vGPU of a sub-cluster holds: loaded and unloaded while the others go on. Knows nothing of Ray."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partita_runtime.execution.build import warmed
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.logs import concerning
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.replica.vgpu import Vgpu
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.transport.transport import TCP, Carrier

logger = logging.getLogger(__name__)


class NoRoomError(Exception):
    """The models that are held leave too little of the vGPU's memory."""


@dataclass(eq=False)
class _Loaded:
    """A model in memory; the stages of several plans may use it."""

    build: StageBuild
    built: BuiltExecutor
    static_bytes: int
    dynamic_bytes: int


@dataclass(eq=False)
class _Held:
    """One stage of one plan, open for batches."""

    arguments: StageArguments
    loaded: _Loaded
    worker: StageWorker
    announcement: Announcement


class HeldModels:
    """Brings what a vGPU holds to what it should hold, a model at a time; use it on one event loop."""

    def __init__(
        self,
        vgpu_id: str,
        node: str,
        host: str,
        warm: Callable[[StageBuild], BuiltExecutor] | None = None,
        carrier: Carrier = TCP,
    ) -> None:
        """`vgpu_id` is what the schedulers call it; `warm` loads a model and runs it at every batch size."""
        self._vgpu_id = vgpu_id
        self._node = node
        self._host = host
        self._carrier = carrier
        self._warm = warm or warmed
        self._vgpu = Vgpu()
        self._held: dict[str, _Held] = {}
        self._problems: dict[str, str] = {}
        """Why stages that are wanted are not held."""
        self._changing = asyncio.Lock()

    @property
    def announcements(self) -> list[Announcement]:
        """The stages that are open for batches; the first of each plan tells why others are not."""
        firsts = {held.arguments.plan: held for held in reversed(self._held.values())}
        problems = tuple(self._problems.values())
        return [
            held.announcement.model_copy(update={"warnings": held.announcement.warnings + problems})
            if firsts[held.arguments.plan] is held
            else held.announcement
            for held in self._held.values()
        ]

    def check_health(self) -> None:
        """Raises RuntimeError if nothing more will be run."""
        self._vgpu.check_health()

    async def hold(self, wanted: Sequence[StageArguments], memory_bytes: int | None) -> None:
        """Hold these stages and no others; `memory_bytes` is the vGPU's, if it is known.

        Models that no stage needs any more go first, each once its frontends have left; then those that are missing
        are loaded and warmed up one after the other, beside the batches of those that are there, and opened. One that
        cannot be held disturbs nobody: `announcements` say why. Raises what was wrong with it only if nothing is held.
        """
        async with self._changing:
            self._vgpu.start()
            by_name = {_name(arguments): arguments for arguments in wanted}
            self._problems = {}
            for name in [name for name, held in self._held.items() if by_name.get(name) != held.arguments]:
                await self._let_go(name)
            first: Exception | None = None
            for name, arguments in by_name.items():
                if name in self._held:
                    continue
                try:
                    self._held[name] = await self._open(name, arguments, memory_bytes)
                except Exception as error:
                    first = first or error
                    logger.exception("%s is not loaded", name, extra=concerning(plan=arguments.plan))
                    self._problems[name] = (
                        f"on the same vGPU, {arguments.module} of {arguments.plan} is not loaded: {error}"
                    )
            if first is not None and not self._held:
                raise first

    async def close(self) -> None:
        """Take no more batches, and return once all frontends have left with their answers."""
        async with self._changing:
            for name in [*self._held]:
                await self._let_go(name)
            self._vgpu.stop()

    async def stop(self) -> None:
        """Close everything, whatever is under way."""
        self._vgpu.stop()
        for held in self._held.values():
            await held.worker.stop()

    async def _let_go(self, name: str) -> None:
        held = self._held.pop(name)
        await held.worker.drain()
        await held.worker.stop()

    async def _open(self, name: str, arguments: StageArguments, memory_bytes: int | None) -> _Held:
        loaded = await self._load(arguments, memory_bytes)
        worker = StageWorker(loaded.built, arguments.build.max_batch, self._vgpu, self._carrier)
        hop = await worker.start(self._host)
        announcement = Announcement(
            replica=f"{self._vgpu_id}/{name}",
            session_key=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            node=self._node,
            hop=hop,
            profile=arguments.profile,
            partition=loaded.built.partition,
            warnings=loaded.built.warnings,
            vgpu=self._vgpu_id,
        )
        return _Held(arguments, loaded, worker, announcement)

    async def _load(self, arguments: StageArguments, memory_bytes: int | None) -> _Loaded:
        """The stage's model, which may be in memory already."""
        there = [*dict.fromkeys(held.loaded for held in self._held.values())]
        for loaded in there:
            if covers(loaded.build, arguments.build):
                return loaded
        check_memory(arguments, there, memory_bytes)
        built = await asyncio.to_thread(self._warm, arguments.build)
        for warning in built.warnings:
            logger.warning("%s", warning)
        return _Loaded(arguments.build, built, arguments.static_bytes, arguments.dynamic_bytes)


def covers(there: StageBuild, wanted: StageBuild) -> bool:
    """Whether what was built for one stage runs another's batches: it is the same but for a smaller largest batch."""
    if there.max_batch < wanted.max_batch:
        return False
    emulation = there.emulation
    if emulation is not None:
        emulation = emulation.model_copy(update={"latency_micros": emulation.latency_micros[: wanted.max_batch]})
    return there.model_copy(update={"max_batch": wanted.max_batch, "emulation": emulation}) == wanted


def check_memory(arguments: StageArguments, there: Sequence[_Loaded], memory_bytes: int | None) -> None:
    """Raises NoRoomError unless the model fits beside those that are there (Symphony, appendix A, equation 5).

    The static memory of all models and the largest dynamic one count: one model runs at a time.
    """
    if memory_bytes is None:
        return
    static = arguments.static_bytes + sum(loaded.static_bytes for loaded in there)
    dynamic = max([arguments.dynamic_bytes, *(loaded.dynamic_bytes for loaded in there)])
    if static + dynamic > memory_bytes:
        raise NoRoomError(
            f"with it the vGPU's {len(there) + 1} models need {static} bytes, and {dynamic} for the largest batch, of "
            f"{memory_bytes}; it is loaded once models that no plan uses are gone, or set fewer models, or smaller "
            "batches (planner.maxBatchSize), to a sub-cluster"
        )


def _name(arguments: StageArguments) -> str:
    return f"{arguments.plan}/{arguments.module}/{arguments.pipeline}/{arguments.stage}"
