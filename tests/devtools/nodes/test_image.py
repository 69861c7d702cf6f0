"""Builds of images by the real buildah."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from partita_devtools.nodes.image import build_image

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
