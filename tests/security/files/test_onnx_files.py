"""Attacks by .onnx files: reading other files, running other code, and content that no digest covers."""

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from tests.runtime.models.onnx_files import floats, made, packaged

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import load_file
from partita_runtime.models.source import load_model

SECRET = np.arange(4, dtype=np.float32).tobytes()


def weights_in(location: str, length: int = len(SECRET)) -> TensorProto:
    """Weights that are in a file."""
    tensor = TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def adding(weights: TensorProto) -> ModelProto:
    return made([helper.make_node("Add", ["x", "weights"], ["y"])], weights=[weights])


def inner(weights: TensorProto) -> ModelProto:
    """With the weights as the attribute of a constant in a branch."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["inside"], value=weights)], "branch", [], [floats("inside", 4)]
    )
    nodes = [
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
        helper.make_node("If", ["yes"], ["weights"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "weights"], ["y"]),
    ]
    return made(nodes)


def written(tmp_path: Path, model: ModelProto) -> Path:
    folder = tmp_path / "models"
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("where", [adding, inner], ids=["weights of the graph", "weights in a branch"])
@pytest.mark.parametrize(
    "way", ["../secret.bin", "{tmp}/secret.bin", "link.bin", "folder/secret.bin", "a/../../secret.bin"]
)
def test_weights_outside_the_directory_are_not_read(way: str, where: object, tmp_path: Path) -> None:
    assert callable(where)
    (tmp_path / "secret.bin").write_bytes(SECRET)
    path = written(tmp_path, where(weights_in(way.format(tmp=tmp_path))))
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    (path.parent / "folder").symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(ModelError) as raised:
        load_file(path)
    assert raised.value.reason is ModelErrorReason.FORBIDDEN
    assert "are outside its directory; write the model as one file" in raised.value.message


def test_weights_in_a_pipe_are_not_waited_for(tmp_path: Path) -> None:
    path = written(tmp_path, adding(weights_in("pipe")))
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(ModelError, match="the file pipe with the weights of weights is missing"):
        load_file(path)


@pytest.mark.parametrize(
    ("operator", "domain", "reason"),
    [
        pytest.param("EPContext", "com.microsoft", ModelErrorReason.FORBIDDEN, id="a compiled engine in another file"),
        pytest.param("PyOp", "com.microsoft", ModelErrorReason.FORBIDDEN, id="Python code"),
        pytest.param("Decode", "ai.onnx.contrib", ModelErrorReason.FILE_UNREADABLE, id="a library of custom operators"),
        pytest.param("Relu", "evil", ModelErrorReason.FILE_UNREADABLE, id="a domain of its own"),
    ],
)
def test_operators_with_other_code_are_refused(
    operator: str, domain: str, reason: ModelErrorReason, tmp_path: Path
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    with pytest.raises(ModelError, match=operator) as raised:
        load_file(written(tmp_path, made([node], opset_imports=opsets)))
    assert raised.value.reason is reason


def test_a_digest_covers_all_that_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, adding(weights_in("weights.bin")))
    (path.parent / "weights.bin").write_bytes(SECRET)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    with pytest.raises(ModelError, match="weights in other files, about which its digest says nothing") as raised:
        load_model(ModelSource(file=str(path), sha256=digest))
    assert raised.value.reason is ModelErrorReason.FORBIDDEN
    # The command of the message.
    onnx.save_model(onnx.load(str(path)), str(path))
    load_model(ModelSource(file=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    content = packaged("ch_ppocr_mobile_v2.0_cls_mobile").read_bytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError, match=r"write it again with onnx\.save_model") as raised:
        load_file(path)
    assert raised.value.reason is ModelErrorReason.FILE_UNREADABLE


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        pytest.param(weights_in("absent.bin"), "absent.bin with the weights of weights is missing", id="missing"),
        pytest.param(weights_in("short.bin", 400), "short.bin is too short for the weights", id="too short"),
        pytest.param(weights_in("short.bin", 8), "cannot read", id="fewer than the shape needs"),
        pytest.param(
            TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=b"1234"),
            "cannot read",
            id="a shape beyond its content",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: TensorProto, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, adding(weights))
    (path.parent / "short.bin").write_bytes(SECRET)
    with pytest.raises(ModelError, match=says):
        load_file(path)
