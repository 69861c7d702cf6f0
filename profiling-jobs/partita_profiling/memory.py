"""The memory of a model's blocks."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from partita_api.profile import BlockMemory
from partita_api.session.module import Inputs
from partita_runtime.models.capture import examples
from partita_runtime.models.onnx.module import OnnxModule
from partita_runtime.models.partitioned_model import PartitionedModel


def block_memory(model: PartitionedModel, inputs: Inputs) -> tuple[BlockMemory, ...]:
    """Weights of every block, and the peak of its activations for one sample, in bytes.

    Counted during the run of one sample, independent of the device; scratch space of libraries is not included. For
    ONNX Runtime the activations are those of the graph, without a run: it runs operations in the same order.
    """
    blocks = [model.block(index) for index in range(len(model.blocks))]
    onnx = [block.activation_bytes for block in blocks if isinstance(block, OnnxModule)]
    activations = onnx if model.is_onnx else _counted(blocks, inputs)
    return tuple(
        BlockMemory(weights_bytes=_weights_bytes(block), activation_bytes=peak)
        for block, peak in zip(blocks, activations, strict=True)
    )


def _weights_bytes(block: torch.nn.Module) -> int:
    storages: dict[int, int] = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in block.state_dict().values()
    }
    return sum(storages.values()) + (block.graph_bytes if isinstance(block, OnnxModule) else 0)


def _counted(blocks: Sequence[torch.nn.Module], inputs: Inputs) -> list[int]:
    """The peak of every block's activations in a run of one sample."""
    peaks = []
    tensors: Any = examples(inputs, 1)
    for block in blocks:
        with torch.no_grad(), LiveTensors() as live:
            tensors = [tensor.clone() for tensor in tensors]
            tensors = block(*tensors)
        peaks.append(live.peak_bytes)
    return peaks


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages of the tensors that operations return, from creation to release."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._live_bytes = 0
        self._tensors: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count its results."""
        del types
        answer = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(answer):
            if isinstance(leaf, torch.Tensor):
                self._follow(leaf)
        return answer

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._tensors.get(key):
            self._live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self._live_bytes)
        self._tensors[key] = self._tensors.get(key, 0) + 1
        weakref.finalize(tensor, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            self._live_bytes -= size
