"""The forms in which a model can compute: by one of the backends, cut or whole, in full or in half precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel
from tests.runtime.models.onnx_files import exported

from partita_api.session.execution import Backend, CutDType
from partita_api.session.module import Inputs, ModelSource, NamedInput, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import Array
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.load.reference import Forward
from partita_runtime.models.onnx.module import OnnxModule
from partita_runtime.models.partitioned_model import WholeModel, partition_source
from partita_runtime.models.source import load_model

BLOCKS: Final = 10
MOST_CUTS: Final = BLOCKS - 1


class NotPossibleError(Exception):
    """A model cannot compute in a form; the message says why."""


@dataclass(frozen=True)
class Form:
    """How a model computes."""

    backend: Backend
    cuts: int = 0
    """Between its stages; fewer if the model has fewer blocks."""
    cut_dtype: CutDType = CutDType.FP32
    is_half: bool = False
    """Whether weights and arithmetic have half precision."""

    @property
    def name(self) -> str:
        """For people."""
        if self.is_half:
            return f"{self.backend}, the model in FP16"
        cuts = {0: "whole", 1: f"a cut in {self.cut_dtype}", MOST_CUTS: f"all cuts in {self.cut_dtype}"}
        return f"{self.backend}, {cuts[self.cuts]}"


FORMS: Final = (
    *(Form(backend) for backend in (Backend.EAGER, Backend.INDUCTOR, Backend.ONNX_RUNTIME)),
    *(
        Form(backend, 1, cut_dtype)
        for backend in (Backend.EAGER, Backend.INDUCTOR, Backend.ONNX_RUNTIME)
        for cut_dtype in (CutDType.FP32, CutDType.FP16)
    ),
    *(Form(backend, MOST_CUTS, CutDType.FP16) for backend in (Backend.EAGER, Backend.ONNX_RUNTIME)),
    *(Form(backend, is_half=True) for backend in (Backend.EAGER, Backend.ONNX_RUNTIME)),
)
"""Inductor compiles each stage for minutes, so it has no form with all cuts."""


def forward(source: ModelSource, takes: Inputs, form: Form, folder: Path) -> Forward:
    """The model as a function of one sample, built as replicas build it; `folder` is for files.

    Raises NotPossibleError.
    """
    model = load_model(source)
    if isinstance(model, OnnxModule) and form.backend is not Backend.ONNX_RUNTIME:
        raise NotPossibleError("ONNX Runtime computes the model with every backend")
    if form.is_half and form.backend is Backend.EAGER:
        return _half(WholeModel(model, takes).half())
    if form.backend is Backend.ONNX_RUNTIME and (form.is_half or not isinstance(model, OnnxModule)):
        proto = _complete(model) if isinstance(model, OnnxModule) else exported(model.eval(), takes)
        source = _written(_in_half(proto) if form.is_half else proto, folder)
    return _in_stages(source, takes, form)


def _in_stages(source: ModelSource, takes: Inputs, form: Form) -> Forward:
    blocks = BLOCKS if form.cuts else 1
    count = len(partition_source(source, takes, blocks).blocks)
    stages = min(form.cuts + 1, count)
    single = isinstance(takes, TensorSpec)
    builds = [
        StageBuild(
            model=source,
            input=takes if isinstance(takes, TensorSpec) else None,
            inputs=None if single else tuple(each for each in takes if isinstance(each, NamedInput)),
            blocks=blocks,
            first=first,
            end=end,
            backend=form.backend,
            cut_dtype=form.cut_dtype,
            max_batch=1,
        )
        for first, end in pairwise([count * stage // stages for stage in range(stages + 1)])
    ]
    built = [build_executor(build) for build in builds]
    if wrong := [each for each in built if each.backend_used != form.backend]:
        raise NotPossibleError("; ".join(wrong[0].warnings))

    def run(sample: Sequence[Array]) -> Sequence[Array]:
        arrays = [array[None] for array in sample]
        for stage in built:
            arrays = stage.executor.run(arrays)
        return [array[0] for array in arrays]

    return run


def _half(model: WholeModel) -> Forward:
    @torch.no_grad()
    def run(sample: Sequence[Array]) -> Sequence[Array]:
        tensors = [torch.from_numpy(np.array(array))[None] for array in sample]
        halves = [tensor.half() if tensor.is_floating_point() else tensor for tensor in tensors]
        answers = [answer[0] for answer in model(*halves)]
        return [(answer.float() if answer.is_floating_point() else answer).numpy() for answer in answers]

    return run


def _complete(module: OnnxModule) -> onnx.ModelProto:
    """The graph with its weights."""
    model = onnx.ModelProto()
    model.CopyFrom(module.model)
    for tensor in model.graph.initializer:
        if tensor.name in module.weights:
            tensor.CopyFrom(onnx.numpy_helper.from_array(module.weights[tensor.name].numpy(), tensor.name))
    return model


def _in_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph in half precision; its inputs and outputs keep theirs."""
    converted = OnnxModel(convert_float_to_float16(model, keep_io_types=True))
    converted.topological_sort()  # ONNX Runtime's conversion appends the casts of inputs at the end
    proto = converted.model
    assert isinstance(proto, onnx.ModelProto)
    return proto


def _written(model: onnx.ModelProto, folder: Path) -> ModelSource:
    file = folder / f"{len([*folder.iterdir()])}.onnx"
    onnx.save(model, str(file))
    return ModelSource(file=str(file))
