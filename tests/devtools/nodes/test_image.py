"""Builds of images by the real buildah, and the disk that images need."""

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.errors import DevError
from partita_devtools.nodes.cluster import NodeCluster
from partita_devtools.nodes.image import build_image
from partita_devtools.nodes.node import DevNode, NodeSpec

RECIPE: Final = """
ARG BASE
FROM ${BASE} AS build
COPY content /built

FROM ${BASE}
COPY --from=build /built /content
"""


@pytest.mark.skipif(shutil.which("buildah") is None, reason="no buildah: apt-get install buildah")
def test_a_build_keeps_only_its_own_layers_and_the_next_one_uses_them(tmp_path: Path) -> None:
    source, storage = tmp_path / "source", tmp_path / "images"
    source.mkdir()
    (source / "Dockerfile").write_text(RECIPE)

    def built(content: str) -> str:
        """The part of the log for a build with this content."""
        (source / "content").write_text(content)
        log = storage / "image.log"
        before = len(log.read_text()) if log.exists() else 0
        build_image(
            source, "example.com/a:1", tmp_path / "a.tar", work_dir=storage, arguments={"BASE": "scratch"}, report=print
        )
        return log.read_text()[before:]

    assert "Using cache" not in after_first_use(built("one"))
    first = images(storage)
    built("another")
    assert len(images(storage)) == len(first)
    assert images(storage) != first
    assert after_first_use(built("another")).count("Using cache") == 2


def after_first_use(log: str) -> str:
    """The log of the build of the tag itself: its two copies, without the stage that is kept afterwards."""
    return log[: log.index("--target")]


def images(storage: Path) -> set[str]:
    """The identities of all images and layers."""
    root = ["--root", str(storage / "storage" / "root"), "--runroot", str(storage / "storage" / "run")]
    argv = ["buildah", *root, "--storage-driver", "overlay", "images", "--all", "--quiet"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


class Usage(NamedTuple):
    """As `shutil.disk_usage` returns it."""

    total: int
    used: int
    free: int


def test_an_image_that_does_not_fit_the_disk_is_refused_before_any_node_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(b"0" * 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10_000, 6_000, 4_000))
    nodes = tuple(DevNode(NodeSpec(name), i, tmp_path / name) for i, name in enumerate(("a", "b", "c", "d"), start=1))
    reported: list[str] = []
    with pytest.raises(DevError, match=r"4 nodes need .* GB of disk for image\.tar.*make room"):
        NodeCluster(tmp_path, ControlPlane(tmp_path), nodes).import_image(archive, report=reported.append)
    assert reported == []
