"""Weights that several models of one process have in common, such as those of a module's size classes."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    import torch

    from partita_runtime.models.partitioned_model import PartitionedModel

Content = tuple[object, ...]
"""What a tensor contains, and where it is to be."""


class SharedWeights:
    """Finds equal weights by their content, for as long as a model has them. Models may not write to them."""

    def __init__(self) -> None:
        self._holders: dict[Content, list[ref[torch.Tensor]]] = {}

    def placed(self, model: "PartitionedModel", device: "torch.device") -> "PartitionedModel":
        """A model from the CPU on the device. It takes the weights that are there, and only its others are moved."""
        contents = {name: _content(tensor, device) for name, tensor in _weights(model)}
        for name, tensor in _weights(model):
            if (there := self._holder(contents[name])) is not None:
                tensor.data = there.data
        placed = model.to(device)
        for name, tensor in _weights(placed):
            self._holders.setdefault(contents[name], []).append(ref(tensor))
        return placed

    def _holder(self, content: Content) -> "torch.Tensor | None":
        """A tensor of this content that a model still has."""
        alive = [holder for holder in self._holders.get(content, ()) if holder() is not None]
        self._holders[content] = alive
        return alive[0]() if alive else None


def _weights(model: "PartitionedModel") -> Iterator[tuple[str, "torch.Tensor"]]:
    """The parameters of all blocks, and the buffers that no operation can change, by name."""
    for number, block in enumerate(model.blocks):
        if block is not None:
            tensors = [*block.named_parameters(), *(block.named_buffers() if _only_reads(block) else ())]
            yield from ((f"{number}.{name}", tensor) for name, tensor in tensors)


def _only_reads(block: "torch.nn.Module") -> bool:
    """Whether a block cannot write to its buffers: ONNX Runtime computes it, or it has functional operations only."""
    from torch._ops import OpOverload
    from torch.fx import GraphModule

    from partita_runtime.models.onnx.module import OnnxModule

    if not isinstance(block, GraphModule):
        return isinstance(block, OnnxModule)
    operations = [node for node in block.graph.nodes if node.op.startswith("call_")]
    return all(
        node.op == "call_function" and not (isinstance(node.target, OpOverload) and node.target._schema.is_mutable)
        for node in operations
    )


def _content(tensor: "torch.Tensor", device: "torch.device") -> Content:
    import torch

    values = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return str(device), tensor.dtype, tensor.shape, tensor.stride(), sha256(values.data).digest()
