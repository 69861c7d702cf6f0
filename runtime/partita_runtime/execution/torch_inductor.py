"""Execution with code compiled by torch's Inductor."""

from collections.abc import Sequence
from types import FunctionType, MethodType

import torch

from partita_runtime.execution.torch_stage import Boundary, CannotBuildError, Compute, StageBlocks


def inductor(blocks: StageBlocks, entry: Boundary) -> Compute:
    """Compile the blocks now, once for all batch sizes and once for a single sample. Raises CannotBuildError."""
    compiled = torch.compile(_with_own_code(blocks))

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for tensor in tensors:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        answer: Sequence[torch.Tensor] = compiled(*tensors)
        return answer

    try:
        # The code of tensors from outside of inference mode does not serve for those from within.
        with torch.inference_mode(), torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            example = entry.zeros(2)
            compute(example)
            compute([tensor[:1] for tensor in example])
    except Exception as error:
        torch._dynamo.reset()
        raise CannotBuildError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return compute


def _with_own_code(blocks: StageBlocks) -> MethodType:
    """`blocks.forward` with a copy of its code.

    torch compiles a code object for a few cases only, and runs further ones eagerly without an error. All stages in a
    process would share them.
    """
    forward = type(blocks).forward
    return MethodType(FunctionType(forward.__code__.replace(), forward.__globals__), blocks)
