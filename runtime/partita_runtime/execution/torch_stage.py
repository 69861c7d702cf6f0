"""One stage's blocks on a device, and the conversion of batches between network arrays and tensors."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch

from partita_api.session.execution import CutDType
from partita_api.session.module import Inputs, TensorSpec, specs_of
from partita_runtime.execution.executor import NUMPY_DTYPES, Array, check_batch, filled_up, is_within, zeros
from partita_runtime.models.layers import SampleTensor, at_cut
from partita_runtime.models.onnx.module import OnnxModule
from partita_runtime.models.partitioned_model import PartitionedModel

Compute = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""The stage's blocks as a function of the tensors that cross its first cut."""

LARGEST_HALF = torch.finfo(torch.float16).max

# Nothing writes to read-only arrays: see `_on_device`.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)


class CannotBuildError(Exception):
    """A backend cannot build the stage here; the message says why."""


class StageBlocks(torch.nn.Module):
    """Blocks in a row."""

    def __init__(self, blocks: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(blocks)

    @property
    def are_onnx(self) -> bool:
        """Whether ONNX Runtime computes them."""
        return any(isinstance(block, OnnxModule) for block in self.blocks)

    def forward(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """The tensors that cross the last block's cut."""
        for block in self.blocks:
            tensors = block(*tensors)
        return tensors


class Boundary:
    """The tensors at one end of a stage, in the model's form and in transport form."""

    def __init__(self, samples: Sequence[SampleTensor], specs: Sequence[TensorSpec], device: torch.device) -> None:
        self.specs = tuple(specs)
        self.device = device
        self._samples = tuple(samples)

    def to_device(self, arrays: Sequence[Array]) -> list[torch.Tensor]:
        """Convert arrays from the network to tensors with the model's element types.

        The device converts them: in one step with the copy, torch would convert on the CPU and copy twice the bytes.
        """
        return [
            _on_device(array, self.device)
            .to(getattr(torch, sample.dtype))
            .reshape(array.shape if sample.shape else array.shape[0])
            for array, sample in zip(arrays, self._samples, strict=True)
        ]

    def zeros(self, batch: int) -> list[torch.Tensor]:
        """Tensors of zeros."""
        return self.to_device(zeros(self.specs, batch))

    def to_host(self, tensors: Sequence[torch.Tensor]) -> list[Array]:
        """Convert tensors of the model to arrays for the network; waits for the device.

        What smaller samples lack of the specs' shapes is filled up with zeros.
        """
        return [
            _filled_up(
                _cast(tensor, spec).reshape(tensor.shape[0], *(tensor.shape[1:] or (1,))).contiguous().cpu().numpy(),
                (tensor.shape[0], *spec.shape),
            )
            for tensor, spec in zip(tensors, self.specs, strict=True)
        ]


def stage_boundaries(
    model: PartitionedModel, first: int, end: int, inputs: Inputs, cut_dtype: CutDType, device: torch.device
) -> tuple[Boundary, Boundary]:
    """The inputs and outputs of the stage of blocks [first, end)."""
    memory = torch.device("cpu") if model.is_onnx else device

    def boundary(index: int) -> Boundary:
        samples = model.boundaries[index]
        if index == 0:
            specs = [*specs_of(inputs)]
        elif index == len(model.blocks):
            specs = [sample.answer for sample in samples]
        else:
            specs = [at_cut(sample.spec, cut_dtype) for sample in samples]
        return Boundary(samples, specs, memory)

    return boundary(first), boundary(end)


class TorchExecutor:
    """Runs a stage's blocks with torch. The last stage answers in full precision."""

    def __init__(
        self,
        blocks: StageBlocks,
        compute: Compute,
        entry: Boundary,
        exit: Boundary,
        *,
        max_batch: int,
        any_size: bool = False,
    ) -> None:
        """With `any_size`, the blocks compute samples that are smaller than the specs of `entry`."""
        self._blocks = blocks
        self._compute = compute
        self._entry = entry
        self._exit = exit
        self._max_batch = max_batch
        self._any_size = any_size

    @property
    def memory_bytes(self) -> int:
        """Bytes of weights; weights that several layers share count once."""
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in (*self._blocks.parameters(), *self._blocks.buffers())
        }
        return sum(storages.values())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The stage's outputs for one batch (see `StageExecutor.run`)."""
        check_batch(inputs, self._entry.specs, self._max_batch, any_size=self._any_size)
        with torch.inference_mode():
            return self._exit.to_host(self._compute(self._entry.to_device(inputs)))

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Run once with zeros at every batch size."""
        for batch in batch_sizes:
            self.run(zeros(self._entry.specs, batch))


def _filled_up(array: Array, shape: Sequence[int]) -> Array:
    """Raises ValueError for an array that is larger."""
    if array.shape != tuple(shape) and not is_within(array.shape, shape):
        raise ValueError(
            f"the model answered {list(array.shape)}, which is not within {list(shape)}, its answer for the size of "
            "the class; remove sizeStep from the module"
        )
    return filled_up(array, shape)


def _on_device(array: Array, device: torch.device) -> torch.Tensor:
    """A tensor of the array, which may be a read-only view of a network buffer; on the CPU, blocks may write to it."""
    if device.type == "cpu" and not array.flags.writeable:
        array = np.array(array)
    return torch.from_numpy(array).to(device)


def _cast(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    target = getattr(torch, str(NUMPY_DTYPES[spec.dtype]))
    if target is torch.float16 and tensor.dtype is not torch.float16:
        tensor = tensor.clamp(-LARGEST_HALF, LARGEST_HALF)  # half precision has only infinity beyond it
    return tensor.to(target)
