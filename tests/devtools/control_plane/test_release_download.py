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
from partita_devtools.control_plane.binaries import entry, missing
from partita_devtools.control_plane.release_download import ETCD_VERSION, RELEASE_VERSION, download_release
from partita_devtools.errors import DevError
from partita_devtools.machine.ports import free_ports

PROGRAM = b"#!/bin/sh\necho from the release\n"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at what comes of the requests."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that the stand-in serves, with a complete release for amd64."""
    root = tmp_path / "mirror"
    (root / "amd64").mkdir(parents=True)
    for program in ("kube-apiserver", "kube-controller-manager"):
        (root / "amd64" / program).write_bytes(PROGRAM)
        (root / "amd64" / f"{program}.sha256").write_text(hashlib.sha256(PROGRAM).hexdigest())
    folder = f"etcd-{ETCD_VERSION}-linux-amd64"
    with tarfile.open(root / f"{folder}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{folder}/etcd")
        member.size = len(PROGRAM)
        archive.addfile(member, io.BytesIO(PROGRAM))
    digest = hashlib.sha256((root / f"{folder}.tar.gz").read_bytes()).hexdigest()
    (root / "SHA256SUMS").write_text(f"{'0' * 64}  etcd-other.tar.gz\n{digest}  {folder}.tar.gz\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(release_download, "_KUBERNETES_URL", url)
    monkeypatch.setattr(release_download, "_ETCD_URL", url)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    yield root
    server.shutdown()
    server.server_close()


def test_a_complete_release_ends_up_in_the_cache(mirror: Path, tmp_path: Path) -> None:
    del mirror
    cache = tmp_path / "cache"
    download_release(cache, print)
    directory = entry(cache, RELEASE_VERSION)
    assert missing(directory) == []
    assert subprocess.check_output([directory / "etcd"], text=True) == "from the release\n"
    assert os.listdir(cache / "kubernetes") == [RELEASE_VERSION]


def test_a_program_that_does_not_match_its_sum_is_not_used(mirror: Path, tmp_path: Path) -> None:
    (mirror / "amd64/kube-controller-manager").write_bytes(b"tampered with")
    with pytest.raises(DevError, match=r"kube-controller-manager: its SHA-256 sum is"):
        download_release(tmp_path / "cache", print)
    assert os.listdir(tmp_path / "cache/kubernetes") == []


def test_an_etcd_that_is_not_in_the_published_sums_is_not_used(mirror: Path, tmp_path: Path) -> None:
    (mirror / "SHA256SUMS").write_text(f"{'0' * 64}  etcd-other.tar.gz\n")
    with pytest.raises(DevError, match="does not list etcd"):
        download_release(tmp_path / "cache", print)


def test_a_file_that_is_not_there_is_named(mirror: Path, tmp_path: Path) -> None:
    (mirror / "amd64/kube-apiserver").unlink()
    with pytest.raises(DevError, match=r"amd64/kube-apiserver: HTTP Error 404"):
        download_release(tmp_path / "cache", print)


def test_a_closed_network_is_found_out_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(release_download, "_KUBERNETES_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    started = time.monotonic()
    with pytest.raises(DevError, match="refused"):
        download_release(tmp_path, print)
    assert time.monotonic() - started < 10


def test_an_architecture_without_a_release_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(DevError, match="riscv64"):
        download_release(tmp_path, print)
