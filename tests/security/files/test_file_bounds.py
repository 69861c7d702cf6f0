"""Files of models that need more memory than their size."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.security.files.exported_archive import PROGRAM, WEIGHTS, ExportedArchive, with_partita

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError
from partita_runtime.models.exported.archive import LARGEST_DOCUMENT
from partita_runtime.models.source import load_model


def deflated(path: Path, target: Path) -> Path:
    """The same members, compressed."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as small:
        for name in archive.namelist():
            small.writestr(name, archive.read(name))
    return target


def test_an_exported_file_needs_no_more_memory_than_its_size(harmless: ExportedArchive, tmp_path: Path) -> None:
    zeros = harmless.copy().with_member("extra/zeros", bytes(2**20)).written(tmp_path / "large.pt2")

    with pytest.raises(ModelError, match="compressed members, with 10"):
        with_partita(deflated(zeros, tmp_path / "m.pt2"))


@pytest.mark.parametrize(
    ("changes", "content", "want_words"),
    [
        pytest.param({"sizes": [{"as_int": 2**50}]}, b"", "which is empty", id="many elements of an empty member"),
        pytest.param({"sizes": [{"as_int": 2**50}]}, bytes(8), "out of bounds", id="more elements than the member has"),
        pytest.param({"storage_offset": {"as_int": 2**50}}, bytes(8), "out of bounds", id="elements after the member"),
        pytest.param({"strides": [{"as_int": -1}]}, bytes(8), "[Nn]egative", id="elements before the member"),
        pytest.param({}, bytes(7), "match", id="half an element"),
        pytest.param({"dtype": 99}, bytes(8), "the value 99", id="an unknown type"),
        pytest.param({"device": {"type": "meta", "index": None}}, bytes(8), "the device 'meta'", id="another device"),
    ],
)
def test_tensors_are_within_their_members(
    changes: dict[str, Any], content: bytes, want_words: str, harmless: ExportedArchive, tmp_path: Path
) -> None:
    scale = harmless.document(WEIGHTS)["config"]["scale"]
    archive = harmless.copy().with_member(f"data/weights/{scale['path_name']}", content)
    path = archive.with_changed(
        WEIGHTS, lambda document: document["config"]["scale"]["tensor_meta"].update(changes)
    ).written(tmp_path / "m.pt2")

    with pytest.raises(ModelError, match=want_words):
        with_partita(path)


def test_a_program_has_a_limited_size(harmless: ExportedArchive, tmp_path: Path) -> None:
    path = harmless.copy().with_member(PROGRAM, b" " * (LARGEST_DOCUMENT + 1)).written(tmp_path / "m.pt2")

    with pytest.raises(ModelError, match="at most"):
        with_partita(path)


def compressed_zeros(path: Path) -> None:
    torch.save({"head.bias": torch.zeros(20 * 2**20)}, path.with_name("large"))
    deflated(path.with_name("large"), path)


def more_elements_than_the_member_has(path: Path) -> None:
    torch.save({"head.bias": torch.zeros(4)}, path.with_name("small"))
    number, larger = b"K\x04", b"J" + (2**30).to_bytes(4, "little")
    reader = torch._C.PyTorchFileReader(str(path.with_name("small")))
    members = {name: reader.get_record(name) for name in ("data.pkl", "data/0")}
    assert number in members["data.pkl"]
    ExportedArchive(members | {"data.pkl": members["data.pkl"].replace(number, larger)}).written(path)


def code_of_torchscript(path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))


def a_header_larger_than_the_file(path: Path) -> None:
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")


def a_tensor_larger_than_the_file(path: Path) -> None:
    header = b'{"head.bias":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))


@pytest.mark.parametrize(
    ("name", "write", "want_words"),
    [
        pytest.param("m.pt", compressed_zeros, "does not compress", id="compressed zeros"),
        pytest.param("m.pt", more_elements_than_the_member_has, "only tensors", id="elements after a member"),
        pytest.param("m.pt", code_of_torchscript, "only tensors", id="TorchScript"),
        pytest.param("m.safetensors", a_header_larger_than_the_file, "header too large", id="a large header"),
        pytest.param("m.safetensors", a_tensor_larger_than_the_file, "file not fully covered", id="a large tensor"),
    ],
)
def test_weights_are_no_larger_than_their_file(
    name: str, write: Callable[[Path], None], want_words: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    source = ModelSource(
        entrypoint="tests.runtime.models.sample_models:Residuals",
        kwargs={"width": 4, "depth": 1},
        weights=str(tmp_path / name),
    )

    with pytest.raises(ModelError, match=want_words):
        load_model(source)


def test_compressed_torchscript_is_refused(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    module.register_buffer("zeros", torch.zeros(20 * 2**20))
    torch.jit.script(module).save(str(tmp_path / "large.pt"))

    with pytest.raises(ModelError, match="does not compress"):
        load_model(ModelSource(file=str(deflated(tmp_path / "large.pt", tmp_path / "m.pt"))))
