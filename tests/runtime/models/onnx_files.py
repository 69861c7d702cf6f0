"""ONNX files for tests: exported, made node by node, and those that come in a package."""

import importlib.util
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from partita_api.session.module import Inputs, names_of
from partita_runtime.models.capture import examples


def exported(
    model: torch.nn.Module,
    inputs: Inputs,
    opset: int = 17,
    outputs: Sequence[str] = (),
    varying: Mapping[str, int] | None = None,
) -> ModelProto:
    """What torch makes of a module, with any batch size, and any size in one dimension of the inputs in `varying`."""
    names = [*names_of(inputs)] or ["samples"]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model,
            tuple(examples(inputs, 2)),
            str(path),
            dynamo=False,
            input_names=names,
            output_names=[*outputs],
            dynamic_axes={name: {0: "batch", **_open(name, varying or {})} for name in names},
            opset_version=opset,
        )
        return onnx.load(str(path))


def _open(name: str, varying: Mapping[str, int]) -> dict[int, str]:
    return {varying[name]: "size"} if name in varying else {}


def packaged(name: str) -> Path:
    """A trained network of the package rapidocr, such as PP-OCRv6_rec_small."""
    package = importlib.util.find_spec("rapidocr")
    assert package is not None, "rapidocr is in the extra dev"
    assert package.origin is not None
    return Path(package.origin).parent / "models" / f"{name}.onnx"


def floats(name: str, *shape: int | str) -> ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def made(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (floats("x", "batch", 4),),
    outputs: Sequence[ValueInfoProto] = (floats("y", "batch", 4),),
    weights: Sequence[TensorProto] = (),
    **fields: Any,
) -> ModelProto:
    """A model of these nodes."""
    graph = helper.make_graph(nodes, "made", inputs, outputs, weights)
    return helper.make_model(graph, **{"opset_imports": [helper.make_opsetid("", 17)], "ir_version": 9, **fields})
