"""What an example's modules import, so that workers find it imported."""

from pathlib import Path

import pytest

from partita_devtools.ray_cluster.third_party_imports import third_party_imports


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("import torch", ("torch",), id="module"),
        pytest.param("import torch.nn as nn", ("torch.nn",), id="submodule"),
        pytest.param("from transformers import A, B", ("transformers:A", "transformers:B"), id="names"),
        pytest.param("from os import path\nimport json", (), id="standard library"),
        pytest.param("from traffic.labels import X\nfrom . import labels", (), id="the example itself"),
        pytest.param("import ray\nfrom partita_api import Quantity", (), id="Ray and Partita"),
        pytest.param("def f():\n    import skimage", (), id="within a function"),
        pytest.param("import (", (), id="not Python"),
        pytest.param(b"\xff\xfe\x00", (), id="not a text"),
    ],
)
def test_imports_are_found(source: str | bytes, want: tuple[str, ...], tmp_path: Path) -> None:
    directory = tmp_path / "traffic"
    directory.mkdir()
    (directory / "models.py").write_bytes(source if isinstance(source, bytes) else source.encode())

    assert third_party_imports(directory) == want


def test_each_import_is_found_once(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("import torch\n")

    assert third_party_imports(tmp_path) == ("torch",)
