"""Reads a .onnx file, and refuses what could read other files or run other code."""

from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import onnx
import onnx.inliner
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo

from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.onnx.nodes import all_nodes, all_tensors

DOMAINS: Final = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains of the operators that ONNX Runtime has without a library of the user."""
FORBIDDEN_OPERATORS: Final = frozenset({"EPContext", "PyOp", "PythonOp"})
"""They make ONNX Runtime read other files, or run other code."""


class OnnxFile(NamedTuple):
    """A model with all of its weights in memory."""

    model: ModelProto
    weights_beside: tuple[Path, ...]
    """The other files that had weights of it, in order."""


def read_onnx(path: Path, *, alone: bool) -> OnnxFile:
    """The model in a file. Raises ModelError.

    alone: whether a digest speaks for the file. It says nothing about files with external data, so these are refused.
    """
    try:
        model = onnx.load_model(str(path), format="protobuf", load_external_data=False)
    except Exception as error:
        raise _unreadable(path, f"it is no ONNX model ({_first_line(error)})") from error
    if not model.graph.node:
        raise _unreadable(path, "its graph is empty: the file is truncated, or no ONNX model")
    _check_operators(path, model)
    external = [tensor for tensor in all_tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL]
    if external and alone:
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{path} has weights in other files, about which its digest says nothing; write it as one file: "
            "onnx.save_model(onnx.load(FILE), FILE)",
        )
    for tensor in external:
        _check_external(path, tensor)
    beside = tuple(path.parent / name for name in sorted({ExternalDataInfo(tensor).location for tensor in external}))
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
        return OnnxFile(onnx.inliner.inline_local_functions(model) if model.functions else model, beside)
    except Exception as error:
        raise _unreadable(path, _first_line(error)) from error


def _check_operators(path: Path, model: ModelProto) -> None:
    own = {function.domain for function in model.functions}
    for node in all_nodes(model.graph):
        if node.domain not in DOMAINS | own:
            raise ModelError(
                ModelErrorReason.FILE_UNREADABLE,
                f"{path} has the custom operator {node.op_type} of domain {node.domain}, which ONNX Runtime lacks; "
                "export the model with standard operators",
            )
        if node.op_type in FORBIDDEN_OPERATORS:
            raise ModelError(
                ModelErrorReason.FORBIDDEN,
                f"{path} has an operator {node.op_type}, which reads other files or runs other code; export the model "
                "without it",
            )


def _check_external(path: Path, tensor: TensorProto) -> None:
    """Raises ModelError unless the weights are in a file below the directory of the model."""
    info = ExternalDataInfo(tensor)
    location = PurePosixPath(info.location)
    file = path.parent / location
    outside = location.is_absolute() or ".." in location.parts or file.is_symlink()
    if outside or not file.resolve().is_relative_to(path.parent.resolve()):
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{path}: the weights of {tensor.name} are outside its directory; write the model as one file",
        )
    if not file.is_file():
        raise _unreadable(path, f"the file {location} with the weights of {tensor.name} is missing beside it")
    if file.stat().st_size < (info.offset or 0) + (info.length or 0):
        raise _unreadable(path, f"the file {location} is too short for the weights of {tensor.name}")


def _unreadable(path: Path, problem: str) -> ModelError:
    return ModelError(
        ModelErrorReason.FILE_UNREADABLE, f"cannot read {path}: {problem}; write it again with onnx.save_model"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
