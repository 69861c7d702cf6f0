"""Downloads the programs of a release from where their projects publish them."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from partita_devtools.control_plane.releases import CONTAINERD_PROGRAMS, COREDNS, ETCD, KUBERNETES_PROGRAMS, Release
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_operator.cli.output import time_left

_KUBERNETES_URL = "https://dl.k8s.io/release"
_GITHUB_URL = "https://github.com"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT_S = 5.0
_CHUNK_BYTES = 1 << 20
_REPORT_EVERY_S = 5.0


@dataclass(frozen=True)
class Download:
    """A published file, and the programs that come with it."""

    url: str
    sums_url: str
    """A file with its SHA-256 sum: the sum alone, or lines of a sum and a file name."""
    members: dict[str, str]
    """The path of each program in the archive; empty: the file is a program itself."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs' names."""
        return tuple(self.members) or (self.name,)


def download_release(release: Release, programs: Sequence[str], directory: Path, report: Report) -> None:
    """Put `programs` of a release into `directory`.

    Every file is checked against its published SHA-256 sum. Raises DevError within seconds if the network blocks the
    download, or if a sum does not match.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise DevError(f"there is no official release for {platform.machine()}")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=directory) as scratch:
        for download in downloads(release, architecture):
            if chosen := [program for program in download.programs if program in programs]:
                file = Path(scratch) / download.name
                _download(download.url, file, _published_sum(download), report)
                for program in chosen:
                    _install(file, download.members.get(program), Path(scratch) / "ready", directory / program)


def downloads(release: Release, architecture: str) -> list[Download]:
    """The files of a release."""
    kubernetes = f"{_KUBERNETES_URL}/{release.kubernetes}/bin/linux/{architecture}"
    etcd = f"{_GITHUB_URL}/etcd-io/etcd/releases/download/{release.etcd}"
    etcd_folder = f"etcd-{release.etcd}-linux-{architecture}"
    containerd = (
        f"{_GITHUB_URL}/containerd/containerd/releases/download/{release.containerd}"
        f"/containerd-{release.containerd.removeprefix('v')}-linux-{architecture}.tar.gz"
    )
    coredns = (
        f"{_GITHUB_URL}/coredns/coredns/releases/download/{release.coredns}"
        f"/coredns_{release.coredns.removeprefix('v')}_linux_{architecture}.tgz"
    )
    return [
        Download(f"{etcd}/{etcd_folder}.tar.gz", f"{etcd}/SHA256SUMS", {ETCD: f"{etcd_folder}/etcd"}),
        *(Download(f"{kubernetes}/{name}", f"{kubernetes}/{name}.sha256", {}) for name in KUBERNETES_PROGRAMS),
        Download(containerd, f"{containerd}.sha256sum", {name: f"bin/{name}" for name in CONTAINERD_PROGRAMS}),
        Download(coredns, f"{coredns}.sha256", {COREDNS: COREDNS}),
    ]


def _published_sum(download: Download) -> str:
    try:
        with urllib.request.urlopen(download.sums_url, timeout=_TIMEOUT_S) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if line.strip()]
    except (OSError, HTTPException) as error:
        raise DevError(f"{download.sums_url}: {error}") from error
    for words in lines:
        if len(words) == 1 or words[-1].rpartition("/")[2] == download.name:
            return str(words[0])
    raise DevError(f"{download.sums_url} does not list {download.name}")


def _download(url: str, path: Path, sha256: str, report: Report) -> None:
    report(f"downloading {url}")
    digest = hashlib.sha256()
    received = 0
    begin = reported = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, path.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                if time.monotonic() - reported > _REPORT_EVERY_S:
                    reported = time.monotonic()
                    left = time_left(received, max(total, received), reported - begin)
                    report(f"downloading {path.name}: {received >> 20} of {total >> 20} MiB, {left}")
    except (OSError, HTTPException) as error:
        raise DevError(f"{url}: {error}") from error
    if digest.hexdigest() != sha256:
        raise DevError(f"{url}: its SHA-256 sum is {digest.hexdigest()}, published is {sha256}; not used")


def _install(file: Path, member: str | None, staged: Path, program: Path) -> None:
    """Put the program, which is `file` or its member, in its place, where it appears complete."""
    if member is None:
        file.rename(staged)
    else:
        _extract(file, member, staged)
    staged.chmod(0o755)
    staged.rename(program)


def _extract(archive: Path, member: str, destination: Path) -> None:
    try:
        with tarfile.open(archive) as packed:
            source = packed.extractfile(member)
            if source is None:
                raise DevError(f"{archive.name} has no file {member}")
            with source, destination.open("wb") as file:
                shutil.copyfileobj(source, file)
    except (KeyError, tarfile.TarError) as error:
        raise DevError(f"{archive.name}: cannot extract {member}: {error}") from error
