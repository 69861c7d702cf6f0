"""The shapes of all values of an ONNX graph for two batch sizes.

ONNX infers them without a run. It fails on many graphs, because shapes are computed inside them; a run shows them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper
from onnx.shape_inference import InferenceError, infer_shapes

from partita_api.session.module import Inputs
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.layers import SampleTensor
from partita_runtime.models.onnx.module import CPU, session
from partita_runtime.models.standard_inputs import standard_inputs

BATCHES: Final = (2, 3)
"""Batch sizes of both; not 1, which broadcasting treats specially."""
_TENSOR: Final = "tensor("
"""The start of ONNX Runtime's name of a tensor's type, such as tensor(float)."""
_NUMPY_NAMES: Final = {"float": "float32", "double": "float64", "string": "object"}
"""numpy's names of element types that ONNX Runtime calls otherwise."""


@dataclass(frozen=True)
class ObservedValue:
    """A value of the graph for both batch sizes."""

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
        """Bytes for one sample, or of the larger batch if the size does not grow with the batch."""
        size = int(np.prod(self.shapes[-1], dtype=np.int64)) * np.dtype(self.dtype).itemsize
        return size // BATCHES[-1] if self.shapes[0] != self.shapes[-1] else size


def observed(model: ModelProto, weights: Mapping[str, torch.Tensor], inputs: Inputs) -> Mapping[str, ObservedValue]:
    """All tensors that the graph's nodes make for these inputs, by name. Raises ModelError.

    The graph has these inputs in this order.
    """
    return inferred(model) or shown_by_runs(model, weights, inputs)


def inferred(model: ModelProto) -> Mapping[str, ObservedValue] | None:
    """The tensors by inference; None if it does not find the shapes of all of them."""
    small, large = (_inferred_for(model, batch) for batch in BATCHES)
    names = [name for node in model.graph.node for name in node.output if name]
    if not (small.keys() & large.keys()).issuperset(names):
        return None
    return {name: ObservedValue(small[name][0], (small[name][1], large[name][1])) for name in names}


def shown_by_runs(
    model: ModelProto, weights: Mapping[str, torch.Tensor], inputs: Inputs
) -> Mapping[str, ObservedValue]:
    """The tensors by two runs on the standard inputs. Raises ModelError.

    Only shapes leave the runs, so the values need not be in memory together.
    """
    types = _tensor_types(model, weights)
    shapes = {name: f"{name}/shape" for name in types}
    asking = _answering(model, shapes.values())
    del asking.graph.node[:]
    for node in model.graph.node:  # ONNX Runtime keeps their order
        asking.graph.node.append(node)
        asking.graph.node.extend(helper.make_node("Shape", [n], [shapes[n]]) for n in node.output if n in shapes)
    runs = session(asking, weights, CPU, optimize=False)
    entries = [value.name for value in model.graph.input]
    small, large = (_run(runs, dict(zip(entries, standard_inputs(inputs, batch), strict=True))) for batch in BATCHES)
    return {name: ObservedValue(dtype, (small[shapes[name]], large[shapes[name]])) for name, dtype in types.items()}


def _inferred_for(model: ModelProto, batch: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """numpy's names of the element types, and the shapes, of the tensors whose shapes inference finds."""
    fixed = ModelProto()
    fixed.CopyFrom(model)
    for entry in fixed.graph.input:
        entry.type.tensor_type.shape.dim[0].dim_value = batch
    try:
        graph = infer_shapes(fixed, strict_mode=True, data_prop=True).graph
    except (InferenceError, ValueError):  # the latter for a model of more than 2 GiB, which cannot be serialized
        return {}
    found = {}
    for value in (*graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        sizes = tensor.shape.dim
        if tensor.HasField("shape") and all(size.HasField("dim_value") for size in sizes):
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
            found[value.name] = dtype, tuple(size.dim_value for size in sizes)
    return found


def _tensor_types(model: ModelProto, weights: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The tensors that the graph's nodes make, and numpy's names of their element types; sequences are left out."""
    names = [name for node in model.graph.node for name in node.output if name]
    values = session(_answering(model, names), weights, CPU, optimize=False).get_outputs()
    elements = {v.name: v.type.removeprefix(_TENSOR).removesuffix(")") for v in values if v.type.startswith(_TENSOR)}
    return {name: _NUMPY_NAMES.get(element, element) for name, element in elements.items()}


def _answering(model: ModelProto, outputs: Iterable[str]) -> ModelProto:
    """The model with these outputs in place of its own."""
    other = ModelProto()
    other.CopyFrom(model)
    del other.graph.output[:]
    other.graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    return other


def _run(runs: Any, feeds: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """The outputs of a run, which are shapes, by name."""
    try:
        values = runs.run(None, feeds)
    except Exception as error:
        given = ", ".join(f"{name} of {list(array.shape)} {array.dtype}" for name, array in feeds.items())
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"ONNX Runtime cannot run the model on its input {given}: "
            f"{str(error).splitlines()[0][:300]}; correct the module's input, or the model",
        ) from error
    names = [output.name for output in runs.get_outputs()]
    return {name: tuple(value.tolist()) for name, value in zip(names, values, strict=True)}
