"""Execution compiled by torch's Inductor."""

from collections.abc import Sequence

import torch

from partita_runtime.execution.torch_stage import Compute, StageBlocks


class CannotCompileError(Exception):
    """Inductor cannot compile the stage here; the message says why."""


def inductor(blocks: StageBlocks, example: Sequence[torch.Tensor]) -> Compute:
    """The blocks compiled for every batch size at once, and for a single sample.

    example: a batch of two, with which they are compiled now. Raises CannotCompileError.
    """
    compiled = torch.compile(blocks)

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for tensor in tensors:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        answer: Sequence[torch.Tensor] = compiled(*tensors)
        return answer

    try:
        with torch.inference_mode():
            compute(example)
            compute([tensor[:1] for tensor in example])
    except Exception as error:
        torch._dynamo.reset()
        raise CannotCompileError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return compute
