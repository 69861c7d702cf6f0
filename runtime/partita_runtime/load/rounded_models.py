"""The answers of a session's models as its plans cut them: tensors that cross a cut lose precision there.

A model may amplify the rounding of the models before it: a detection moves by a fraction of a pixel, and the crop made
from it differs by a little at every edge. So an answer may differ from that of the whole models by more than rounding,
although every stage works. These answers say by how much.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import torch

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.module import Module
from partita_runtime.execution.executor import Array
from partita_runtime.execution.torch_eager import eager
from partita_runtime.execution.torch_stage import StageBlocks, TorchExecutor, stage_boundaries
from partita_runtime.load.reference import Forward, WholeModels
from partita_runtime.models.partitioned_model import PartitionedModel, partition_source

Cuts = tuple[int, ...]
"""The first block of every stage but the first one."""


@dataclass(frozen=True)
class ModuleAnswer:
    """What a cut model and the whole model answer for the same input."""

    module: str
    cuts: Cuts
    rounded: list[Array]
    whole: list[Array]


@dataclass(frozen=True)
class RoundedAnswer:
    """An answer of a session that pipelines with these cuts give."""

    tensors: Mapping[str, Array]
    """By name, as a frontend answers."""
    modules: tuple[ModuleAnswer, ...]
    """The execution of every cut model."""


class RoundedModels:
    """The models of a session with the cuts of its plans, in this process and without batching."""

    def __init__(self, session: InferenceSessionSpec, plans: Iterable[PipelinePlanSpec]) -> None:
        """Load and cut the models that a plan cuts. Raises ModelError."""
        self._session = with_size_classes(session)
        self._whole = WholeModels(session)
        self._cuts = cuts_of(plans)
        self._partitioned = {
            module.name: partition_source(module.model, module.takes, session.planner.blocks)
            for module in self._session.modules
            if module.model is not None and module.takes is not None and any(self._cuts.get(module.name, ()))
        }

    def answers(self, request: Mapping[str, Array]) -> Iterator[RoundedAnswer]:
        """One answer for every combination of the modules' pipelines; `request` is as in `WholeModels.answer`."""
        cut = [module for module in self._session.modules if module.name in self._partitioned]
        for combination in product(*(self._cuts[module.name] for module in cut)):
            ran: list[ModuleAnswer] = []
            models = {
                module.name: self._recorded(module, cuts, ran)
                for module, cuts in zip(cut, combination, strict=True)
                if cuts
            }
            yield RoundedAnswer(self._whole.answer(request, models), tuple(ran))

    def _recorded(self, module: Module, cuts: Cuts, ran: list[ModuleAnswer]) -> Forward:
        stages = _stages(self._partitioned[module.name], module, cuts, self._session)

        def forward(sample: Sequence[Array]) -> list[Array]:
            tensors = [array[None] for array in sample]
            for stage in stages:
                tensors = stage.run(tensors)
            rounded = [tensor[0] for tensor in tensors]
            ran.append(ModuleAnswer(module.name, cuts, rounded, [*self._whole.models[module.name](sample)]))
            return rounded

        return forward


def cuts_of(plans: Iterable[PipelinePlanSpec]) -> dict[str, tuple[Cuts, ...]]:
    """The different cuts of each module's pipelines in all of the plans; `()` for a pipeline of one stage."""
    found: dict[str, dict[Cuts, None]] = {}
    for plan in plans:
        for module in plan.modules:
            for pipeline in module.pipelines:
                found.setdefault(module.name, {})[tuple(s.blocks.first for s in pipeline.stages[1:])] = None
    return {module: tuple(cuts) for module, cuts in found.items()}


def _stages(model: PartitionedModel, module: Module, cuts: Cuts, session: InferenceSessionSpec) -> list[TorchExecutor]:
    assert module.takes is not None  # every model has inputs
    device, stages = torch.device("cpu"), []
    for first, end in pairwise((0, *cuts, len(model.blocks))):
        entry, exit = stage_boundaries(model, first, end, module.takes, session.execution.cut_dtype, device)
        blocks = StageBlocks([model.block(i) for i in range(first, end)])
        stages.append(TorchExecutor(blocks, eager(blocks), entry, exit, max_batch=1))
    return stages
