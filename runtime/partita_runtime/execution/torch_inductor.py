"""Execution with code compiled by torch's Inductor."""

from collections.abc import Sequence

import torch

from partita_runtime.execution.torch_stage import Boundary, CannotBuildError, Compute, StageBlocks


def inductor(blocks: StageBlocks, entry: Boundary) -> Compute:
    """Compile the blocks now, once for all batch sizes and once for a single sample. Raises CannotBuildError."""
    compiled = torch.compile(blocks)

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for tensor in tensors:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        answer: Sequence[torch.Tensor] = compiled(*tensors)
        return answer

    try:
        example = entry.zeros(2)
        with torch.inference_mode():
            compute(example)
            compute([tensor[:1] for tensor in example])
    except Exception as error:
        torch._dynamo.reset()
        raise CannotBuildError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return compute
