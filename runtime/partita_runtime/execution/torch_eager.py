"""Eager execution: torch runs one operation after the other."""

from collections.abc import Sequence

import torch

from partita_runtime.execution.torch_stage import Compute, StageBlocks


def eager(blocks: StageBlocks) -> Compute:
    """Run the blocks without compilation."""

    def compute(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        answer: Sequence[torch.Tensor] = blocks(*tensors)
        return answer

    return compute
