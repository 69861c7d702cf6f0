"""Execution as torch runs it, operation by operation."""

from collections.abc import Sequence

import torch

from partita_runtime.execution.torch_stage import Compute, StageBlocks


def eager(blocks: StageBlocks) -> Compute:
    """The blocks as they are."""

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        answer: Sequence[torch.Tensor] = blocks(*tensors)
        return answer

    return compute
