"""The check that a model cut into blocks gives the same answer as the whole model."""

from collections.abc import Sequence

import torch

from partita_api.session.module import Inputs
from partita_runtime.execution.torch_stage import LARGEST_HALF
from partita_runtime.models.capture import examples
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel
from partita_runtime.models.partitioned_model import PartitionedModel, WholeModel

LARGEST_BATCH = 2
RELATIVE_TOLERANCE = 1e-3
"""Relative to the largest number in a tensor: folded constants round differently, wrong cuts cause large errors."""


def check_answer(
    whole: TorchModel, blocks: PartitionedModel, inputs: Inputs, batch: int = LARGEST_BATCH
) -> tuple[str, ...]:
    """Run both on the standard input; returns warnings about cuts with numbers beyond half precision.

    batch: the largest batch that will be served; LARGEST_BATCH is enough.

    Raises ModelError (BAD_OUTPUT) for NaN or infinity in the answer, or if the cut changes the answer.
    """
    given = examples(inputs, min(batch, LARGEST_BATCH))
    tensors, warnings = given, []
    for index in range(len(blocks.blocks)):
        tensors = blocks.run(index, index + 1, tensors)
        if index < len(blocks.cuts) and any(t.is_floating_point() and t.abs().max() > LARGEST_HALF for t in tensors):
            warnings.append(
                f"numbers beyond {LARGEST_HALF:.0f} cross cut {index}, and half precision limits them; "
                "set execution.cutDtype: FP32 if the answers become worse"
            )
    for i, tensor in enumerate(tensors):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ModelError(
                ModelErrorReason.BAD_OUTPUT,
                f"output {i} contains NaN or infinity on the standard input; "
                "check the weights and the input scale that the model expects",
            )
    for i, (tensor, want) in enumerate(zip(tensors, _whole_answer(whole, inputs, given), strict=True)):
        if not _close(tensor, want):
            raise ModelError(
                ModelErrorReason.BAD_OUTPUT,
                f"output {i} changes when the model is cut into blocks: it depends on more than its input (random "
                "numbers, or state that it keeps); make it deterministic in eval mode",
            )
    return tuple(warnings)


@torch.no_grad()
def _whole_answer(whole: TorchModel, inputs: Inputs, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    answer: Sequence[torch.Tensor] = WholeModel(whole, inputs)(*given)
    return answer


def _close(tensor: torch.Tensor, want: torch.Tensor) -> bool:
    if tensor.shape != want.shape:
        return False
    scale = float(want.abs().max()) if want.is_floating_point() else 0.0
    return torch.allclose(tensor.double(), want.double(), rtol=0.0, atol=RELATIVE_TOLERANCE * scale)
