"""The input of a model as its file declares it."""

import torch
from torch.export import ExportedProgram

from partita_api.session.module import DType, TensorSpec
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel
from partita_runtime.models.layers import NUMPY_DTYPES
from partita_runtime.models.onnx.module import OnnxModule

_DTYPES = {dtype.name: DType(name) for name, dtype in NUMPY_DTYPES.items()}


def declared_input(model: TorchModel) -> TensorSpec:
    """One sample of the only input. Raises ModelError if the model does not declare all of its sizes."""
    if isinstance(model, OnnxModule):
        from partita_runtime.models.onnx.graph import input_of  # the package onnx is in an extra

        sizes, dtype = input_of(model.model)
    elif isinstance(model, ExportedProgram):
        sizes, dtype = _exported(model)
    else:
        raise _unknown("a module of Python or TorchScript does not declare its input")
    if dtype not in _DTYPES:
        raise _unknown(f"its input has elements of type {dtype}, which no session can send")
    if not sizes or any(size is None for size in sizes):
        raise _unknown(f"its samples are {['any' if size is None else size for size in sizes or ()]}")
    return TensorSpec(shape=tuple(size for size in sizes if size is not None), dtype=_DTYPES[dtype])


def _exported(program: ExportedProgram) -> tuple[list[int | None], str]:
    names = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor):
        raise _unknown(f"it takes {len(values)} inputs")
    (value,) = values
    return [size if isinstance(size, int) else None for size in value.shape[1:]], str(value.dtype).removeprefix(
        "torch."
    )


def _unknown(problem: str) -> ModelError:
    return ModelError(
        ModelErrorReason.BAD_INPUT, f"the input is not known: {problem}; give --shape and --dtype of one sample"
    )
