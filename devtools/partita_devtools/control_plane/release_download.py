"""Download the official release of Kubernetes and etcd into the cache."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tarfile
import tempfile
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_operator.cli.output import time_left

RELEASE_VERSION = "v1.33.1"
ETCD_VERSION = "v3.5.21"

_KUBERNETES_URL = f"https://dl.k8s.io/release/{RELEASE_VERSION}/bin/linux"
_ETCD_URL = f"https://github.com/etcd-io/etcd/releases/download/{ETCD_VERSION}"
_KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT_S = 5.0
_CHUNK_BYTES = 1 << 20
_REPORT_EVERY_S = 5.0


def download_release(cache: Path, report: Report) -> None:
    """Put etcd, kube-apiserver and kube-controller-manager into `cache/kubernetes/<RELEASE_VERSION>`.

    Every file is checked against its published SHA-256 sum. Raises DevError within seconds if the network blocks the
    download, or if a sum does not match.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise DevError(f"there is no official release for {platform.machine()}")
    destination = cache / "kubernetes" / RELEASE_VERSION
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{RELEASE_VERSION}-", dir=destination.parent) as scratch:
        staging = Path(scratch) / "complete"
        staging.mkdir()
        for program in _KUBERNETES_PROGRAMS:
            url = f"{_KUBERNETES_URL}/{architecture}/{program}"
            _download(url, staging / program, _text(f"{url}.sha256").split()[0], report)
        archive = f"etcd-{ETCD_VERSION}-linux-{architecture}.tar.gz"
        sums = [line.split() for line in _text(f"{_ETCD_URL}/SHA256SUMS").splitlines()]
        expected = next((digest for digest, name in sums if name == archive), None)
        if expected is None:
            raise DevError(f"{_ETCD_URL}/SHA256SUMS does not list {archive}")
        packed = Path(scratch) / archive
        _download(f"{_ETCD_URL}/{archive}", packed, expected, report)
        _extract(packed, f"{archive.removesuffix('.tar.gz')}/etcd", staging / "etcd")
        for staged in staging.iterdir():
            staged.chmod(0o755)
        if destination.exists():
            shutil.rmtree(destination)
        staging.rename(destination)


def _text(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
            return content.decode()
    except (OSError, HTTPException) as error:
        raise DevError(f"{url}: {error}") from error


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
