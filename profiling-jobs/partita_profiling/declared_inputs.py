"""The inputs of a model as its file declares them."""

import torch
from torch.export import ExportedProgram

from partita_api.session.module import DType, Inputs, NamedInput, TensorSpec
from partita_runtime.models.capture import exported_inputs
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel
from partita_runtime.models.layers import NUMPY_DTYPES
from partita_runtime.models.onnx.module import OnnxModule

_DTYPES = {dtype.name: DType(name) for name, dtype in NUMPY_DTYPES.items()}

_Declared = tuple[list[int | None], str]
"""Sizes of one sample, None for open ones, and numpy's name of the elements."""


def declared_inputs(model: TorchModel) -> Inputs:
    """One sample of the inputs, by name if there are several. Raises ModelError if one has sizes that are open."""
    if isinstance(model, OnnxModule):
        from partita_runtime.models.onnx.graph import inputs_of  # the package onnx is in an extra

        found = inputs_of(model.model)
    elif isinstance(model, ExportedProgram):
        found = {name: _of_tensor(value) for name, value in exported_inputs(model).items()}
    else:
        raise _unknown("a module of Python or TorchScript does not declare its inputs")
    specs = {name: _spec(name, *declared) for name, declared in found.items()}
    if len(specs) == 1:
        return next(iter(specs.values()))
    return tuple(NamedInput(name=name, shape=spec.shape, dtype=spec.dtype) for name, spec in specs.items())


def _of_tensor(value: torch.Tensor) -> _Declared:
    sizes: list[int | None] = [size if isinstance(size, int) else None for size in value.shape[1:]]
    return sizes, str(value.dtype).removeprefix("torch.")


def _spec(name: str, sizes: list[int | None], dtype: str) -> TensorSpec:
    if dtype not in _DTYPES:
        raise _unknown(f"{name} has elements of type {dtype}, which no session can send")
    if not sizes or any(size is None for size in sizes):
        raise _unknown(f"the samples of {name} are {['any' if size is None else size for size in sizes]}")
    return TensorSpec(shape=tuple(size for size in sizes if size is not None), dtype=_DTYPES[dtype])


def _unknown(problem: str) -> ModelError:
    return ModelError(
        ModelErrorReason.BAD_INPUT,
        f"the input is not known: {problem}; give --shape and --dtype of one sample, or --input for each of several",
    )
