"""The stages of .onnx files, computed by ONNX Runtime."""

from collections.abc import Sequence

import torch

from partita_api.session.execution import Backend
from partita_runtime.execution.torch_stage import Compute, StageBlocks
from partita_runtime.models.onnx.module import CUDA, OnnxModule, available_providers, joined

_FOR_TENSORRT = "TensorrtExecutionProvider"
_ITS_OWN = (Backend.EAGER, Backend.ONNX_RUNTIME, Backend.TENSORRT)
"""Backends that ONNX Runtime has itself; Eager is the default, and asks for none."""


def onnx_runtime(requested: Backend, blocks: StageBlocks, device: torch.device, warnings: list[str]) -> Compute:
    """The stage's blocks as one graph, with warnings for what is replaced. Raises ModelError."""
    if requested not in _ITS_OWN:
        warnings.append(f"{requested} is not for .onnx files, so ONNX Runtime computes the stage without it")
    stage = joined([block for block in blocks.blocks if isinstance(block, OnnxModule)])
    if device.type == "cuda":
        stage = stage.on(_provider(requested, warnings))
    elif requested is Backend.TENSORRT:
        warnings.append("TensorRT needs a GPU, so ONNX Runtime computes the stage on the CPU")

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        answer: Sequence[torch.Tensor] = stage(*tensors)
        return answer

    return compute


def has_cuda() -> bool:
    """Whether ONNX Runtime here computes on GPUs."""
    return CUDA in available_providers()


def _provider(requested: Backend, warnings: list[str]) -> str:
    """The provider for a GPU, where ONNX Runtime has CUDA."""
    if requested is Backend.TENSORRT:
        if _FOR_TENSORRT in available_providers():
            return _FOR_TENSORRT
        warnings.append("ONNX Runtime has no TensorRT here, so it computes the stage with CUDA")
    return CUDA
