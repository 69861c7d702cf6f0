"""The shapes of all values of an ONNX graph, from two runs with different batch sizes.

Inference of shapes fails on many graphs, because shapes are computed inside them. A run shows them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto

from partita_api.session.module import TensorSpec
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.layers import SampleTensor
from partita_runtime.models.onnx.module import CPU, session
from partita_runtime.models.standard_inputs import standard_input

BATCHES: Final = (2, 3)
"""Batch sizes of the runs; not 1, which broadcasting treats specially, and small, as all values stay in memory."""


@dataclass(frozen=True)
class ObservedValue:
    """A value of the graph, as both runs made it."""

    dtype: str
    """numpy's name of the element type."""
    shapes: tuple[tuple[int, ...], ...]
    """One for each batch size."""

    @property
    def sample(self) -> SampleTensor | None:
        """One sample of it; None if the leading dimension is not the batch size, or another dimension varies."""
        small, large = self.shapes
        leads = small[:1] == BATCHES[:1] and large[:1] == BATCHES[1:] and small[1:] == large[1:]
        return SampleTensor(large[1:], self.dtype) if leads else None

    @property
    def bytes(self) -> int:
        """Bytes for one sample, or of the larger run if the size does not grow with the batch."""
        size = int(np.prod(self.shapes[-1], dtype=np.int64)) * np.dtype(self.dtype).itemsize
        return size // BATCHES[-1] if self.shapes[0] != self.shapes[-1] else size


def observed(model: ModelProto, weights: Mapping[str, torch.Tensor], spec: TensorSpec) -> Mapping[str, ObservedValue]:
    """All tensors that the graph's nodes make for the standard input of `spec`, by name. Raises ModelError."""
    open_model = ModelProto()
    open_model.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del open_model.graph.output[:]
    open_model.graph.output.extend(ValueInfoProto(name=name) for name in names)
    runs = session(open_model, weights, CPU, optimize=False)
    small, large = (_run(runs, names, {model.graph.input[0].name: standard_input(spec, batch)}) for batch in BATCHES)
    return {
        name: ObservedValue(dtype, (small[name][1], shape))
        for name, (dtype, shape) in large.items()
        if name in small and small[name][0] == dtype
    }


def _run(runs: Any, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The element types and shapes of all tensors of one run; sequences are left out."""
    try:
        values = runs.run(names, feeds)
    except Exception as error:
        ((given, array),) = feeds.items()
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"ONNX Runtime cannot run the model on its input {given} of {list(array.shape)} {array.dtype}: "
            f"{str(error).splitlines()[0][:300]}; correct the module's input, or the model",
        ) from error
    tensors = {name: value for name, value in zip(names, values, strict=True) if isinstance(value, np.ndarray)}
    return {name: (value.dtype.name, value.shape) for name, value in tensors.items()}
