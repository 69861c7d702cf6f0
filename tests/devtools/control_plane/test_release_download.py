"""The download of the official release, from a server that stands in for dl.k8s.io and GitHub."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from partita_devtools.control_plane import release_download
from partita_devtools.control_plane.binaries import missing
from partita_devtools.control_plane.release_download import download_release, downloads
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, NODE_PROGRAMS, Release
from partita_devtools.errors import DevError
from partita_devtools.machine.ports import free_ports

PROGRAM = b"#!/bin/sh\necho from the release\n"
RELEASE = Release()
APISERVER = Path(f"kubernetes/{RELEASE.kubernetes}/bin/linux/amd64/kube-apiserver")
ETCD = Path(f"github/etcd-io/etcd/releases/download/{RELEASE.etcd}")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at what comes of the requests."""


def archive_of(*members: str) -> bytes:
    """A compressed archive with a program at each path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in members:
            member = tarfile.TarInfo(path)
            member.size = len(PROGRAM)
            archive.addfile(member, io.BytesIO(PROGRAM))
    return packed.getvalue()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that the stand-in serves, with a complete release for amd64."""
    root = tmp_path / "mirror"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(release_download, "_KUBERNETES_URL", f"{url}/kubernetes")
    monkeypatch.setattr(release_download, "_GITHUB_URL", f"{url}/github")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for download in downloads(RELEASE, "amd64"):
        file = root / download.url.removeprefix(f"{url}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        content = archive_of(*download.members.values()) if download.members else PROGRAM
        file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        sums = file.parent / download.sums_url.rpartition("/")[2]
        # Kubernetes publishes the sum alone, etcd those of all files, the others one line with the name.
        others = f"{'0' * 64}  other.tar.gz\n" if sums.name == "SHA256SUMS" else ""
        sums.write_text(f"{others}{digest}  {file.name}\n" if download.members else digest)
    (tmp_path / "programs").mkdir()
    yield root
    server.shutdown()
    server.server_close()


def test_the_programs_that_are_asked_for_end_up_in_the_directory(mirror: Path, tmp_path: Path) -> None:
    del mirror
    directory = tmp_path / "programs"
    download_release(RELEASE, CONTROL_PLANE_PROGRAMS, directory, print)
    assert sorted(os.listdir(directory)) == sorted(CONTROL_PLANE_PROGRAMS)
    download_release(RELEASE, NODE_PROGRAMS, directory, print)
    assert missing(directory, (*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS)) == []
    assert len(os.listdir(directory)) == len((*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS))
    for program in ("etcd", "kubelet", "containerd-shim-runc-v2", "coredns"):
        assert subprocess.check_output([directory / program], text=True) == "from the release\n"


def test_a_program_that_does_not_match_its_sum_is_not_used(mirror: Path, tmp_path: Path) -> None:
    (mirror / APISERVER).write_bytes(b"tampered with")
    with pytest.raises(DevError, match=r"kube-apiserver: its SHA-256 sum is"):
        download_release(RELEASE, ("kube-apiserver",), tmp_path / "programs", print)
    assert os.listdir(tmp_path / "programs") == []


def test_an_etcd_that_is_not_in_the_published_sums_is_not_used(mirror: Path, tmp_path: Path) -> None:
    (mirror / ETCD / "SHA256SUMS").write_text(f"{'0' * 64}  etcd-other.tar.gz\n")
    with pytest.raises(DevError, match="does not list etcd"):
        download_release(RELEASE, CONTROL_PLANE_PROGRAMS, tmp_path / "programs", print)
    assert os.listdir(tmp_path / "programs") == []


def test_a_file_that_is_not_there_is_named(mirror: Path, tmp_path: Path) -> None:
    (mirror / APISERVER).unlink()
    with pytest.raises(DevError, match=r"amd64/kube-apiserver: HTTP Error 404"):
        download_release(RELEASE, CONTROL_PLANE_PROGRAMS, tmp_path / "programs", print)


def test_a_closed_network_is_found_out_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(release_download, "_KUBERNETES_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    started = time.monotonic()
    with pytest.raises(DevError, match="refused"):
        download_release(RELEASE, ("kube-apiserver",), tmp_path, print)
    assert time.monotonic() - started < 10


def test_an_architecture_without_a_release_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(DevError, match="riscv64"):
        download_release(RELEASE, CONTROL_PLANE_PROGRAMS, tmp_path, print)
