"""A node's containerd: its configuration, its command line, and its images."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.releases import CONTAINERD, CTR
from partita_devtools.errors import DevError
from partita_devtools.nodes.node import DevNode

PAUSE_IMAGE = "partita.dev/pause:1"
_BUSYBOX = Path("/bin/busybox")
_CNI_PROGRAMS = "/usr/lib/cni"


def write_configuration(node: DevNode) -> None:
    """Write `containerd.toml` and the network configuration of the node's pods."""
    network = node.directory / "net.d"
    network.mkdir(parents=True, exist_ok=True)
    (node.directory / "containerd.toml").write_text(_configuration(node, network), encoding="utf-8")
    bridge = {
        "type": "bridge",
        "bridge": node.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": node.pod_range}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(node.directory / "addresses"),
        },
    }
    document = {"cniVersion": "0.4.0", "name": node.bridge, "plugins": [bridge]}
    (network / "10-partita.conflist").write_text(json.dumps(document, indent=2), encoding="utf-8")


def _configuration(node: DevNode, network: Path) -> str:
    """With `restrict_oom_score_adj` runc also works where this machine may not lower oom_score_adj."""
    return f"""\
version = 3
root = "{node.directory / "containerd"}"
state = "{node.directory / "run"}"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{node.socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{_CNI_PROGRAMS}"]
  conf_dir = "{network}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def command(node: DevNode, binaries: Binaries) -> list[str]:
    """The command line of the node's containerd, which finds its shim beside itself."""
    return [binaries.path(CONTAINERD), "--config", str(node.directory / "containerd.toml")]


def answers(node: DevNode, binaries: Binaries) -> bool:
    """Whether the node's containerd answers."""
    argv = [binaries.path(CTR), "--address", str(node.socket), "version"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def write_pause_image(archive: Path) -> None:
    """Write the pause image, a busybox that sleeps, as an archive for containerd."""
    with tarfile.open(archive.with_suffix(".layer"), "w") as layer:
        layer.add(_BUSYBOX, "bin/busybox")
    _write_archive(archive, archive.with_suffix(".layer"), PAUSE_IMAGE, ["/bin/busybox", "sleep", "2147483647"])
    archive.with_suffix(".layer").unlink()


def _write_archive(archive: Path, layer: Path, name: str, entrypoint: list[str]) -> None:
    """One layer as an image archive in the form of `docker save`."""
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entrypoint},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    directory = archive.parent
    with tarfile.open(archive, "w") as packed:
        packed.add(layer, "layer.tar")
        for member, document in (("config.json", configuration), ("manifest.json", manifest)):
            draft = directory / f".{member}"
            draft.write_text(json.dumps(document), encoding="utf-8")
            packed.add(draft, member)
            draft.unlink()


def import_image(node: DevNode, binaries: Binaries, archive: Path) -> None:
    """Import the images of an archive into the node. Raises DevError if containerd refuses it.

    The node keeps the unpacked image only, which is half of the disk: nothing pushes it from there.
    """
    ctr = [binaries.path(CTR), "--address", str(node.socket), "--namespace", "k8s.io"]
    done = subprocess.run(
        [*ctr, "images", "import", "--local", "--discard-unpacked-layers", str(archive)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "no space left on device" in done.stderr:
        raise DevError(
            f"{node.name}: the disk of {node.directory} is full, so containerd cannot import {archive}; a node needs "
            f"up to twice the archive's size; make room (the largest: du -xh -d 2 / | sort -h | tail)"
        )
    if done.returncode:
        raise DevError(f"{node.name}: containerd does not import {archive}: {done.stderr.strip()}")
