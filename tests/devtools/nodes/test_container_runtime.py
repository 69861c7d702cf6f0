"""What users read if a node refuses an image."""

from pathlib import Path

import pytest

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.releases import CTR
from partita_devtools.errors import DevError
from partita_devtools.nodes.container_runtime import import_image
from partita_devtools.nodes.node import DevNode, NodeSpec


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        pytest.param("failed to extract layer: no space left on device", "disk of .* is full.*make room", id="disk"),
        pytest.param("unexpected EOF", "does not import .*image.tar: unexpected EOF", id="archive"),
    ],
)
def test_a_refused_image_is_said_with_the_node_and_the_reason(complaint: str, said: str, tmp_path: Path) -> None:
    ctr = tmp_path / CTR
    ctr.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    ctr.chmod(0o755)
    node = DevNode(NodeSpec("l4"), 1, tmp_path / "l4")
    with pytest.raises(DevError, match=f"^l4: .*{said}"):
        import_image(node, Binaries(tmp_path, "v1.37.2"), tmp_path / "image.tar")
