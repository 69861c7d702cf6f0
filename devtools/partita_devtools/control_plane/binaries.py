"""Finds the programs of a Kubernetes control plane, or downloads or builds them once.

The order: a cluster given by its kubeconfig (no programs needed), the directory `KUBEBUILDER_ASSETS`, the cache, a
download of the official release, and, if the network allows only a Debian mirror, a build of Debian's source package.
The last two fill the cache.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.control_plane.debian_build import DEBIAN_VERSION, build_from_debian
from partita_devtools.control_plane.release_download import RELEASE_VERSION, download_release
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked

REQUIRED = ("etcd", "kube-apiserver", "kube-controller-manager")


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that is there already: it is used, never started or stopped."""

    kubeconfig: Path


@dataclass(frozen=True)
class Binaries:
    """A directory with etcd, kube-apiserver and kube-controller-manager that work together."""

    directory: Path
    release: tuple[int, int]
    """Kubernetes' major and minor version."""

    @property
    def etcd(self) -> str:
        """Path of etcd."""
        return str(self.directory / "etcd")

    @property
    def kube_apiserver(self) -> str:
        """Path of the API server."""
        return str(self.directory / "kube-apiserver")

    @property
    def kube_controller_manager(self) -> str:
        """Path of the controller manager."""
        return str(self.directory / "kube-controller-manager")


@dataclass(frozen=True)
class Provider:
    """A way to fill a cache entry.

    `fetch(cache, report)` puts the binaries into `cache/kubernetes/<version>` in one step. It raises DevError with the
    reason if this is not possible here.
    """

    description: str
    version: str
    fetch: Callable[[Path, Report], None]


PROVIDERS: tuple[Provider, ...] = (
    Provider("the official release by download", RELEASE_VERSION, download_release),
    Provider("a build of Debian's source package", DEBIAN_VERSION, build_from_debian),
)


def cache_directory(environment: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/partita`, or `~/.cache/partita`."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "partita"


def find_kubernetes(
    *,
    report: Report,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    providers: Sequence[Provider] = PROVIDERS,
) -> ExistingCluster | Binaries:
    """The cluster to use or the binaries to start one with, from the first source that has them.

    `kubeconfig` or, without it, the variable `KUBECONFIG` names an existing cluster. One process at a time
    fills the cache; others wait. Raises DevError with the error of each source if none has the programs, and if the
    kubeconfig does not exist.
    """
    named = kubeconfig or (Path(environment["KUBECONFIG"]) if environment.get("KUBECONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise DevError(f"there is no kubeconfig {named}; correct or remove --kubeconfig or KUBECONFIG")
        report(f"using the existing cluster of kubeconfig {named}")
        return ExistingCluster(named)
    return find_binaries(report=report, environment=environment, providers=providers)


def is_at_hand(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `find_kubernetes` neither downloads nor builds anything."""
    assets = environment.get("KUBEBUILDER_ASSETS")
    return (
        kubeconfig is not None
        or bool(environment.get("KUBECONFIG"))
        or (bool(assets) and not missing(Path(assets or "")))
        or _cached(cache_directory(environment), PROVIDERS) is not None
    )


def find_binaries(
    *,
    report: Report,
    environment: Mapping[str, str] = os.environ,
    providers: Sequence[Provider] = PROVIDERS,
) -> Binaries:
    """Like `find_kubernetes`, but ignores `KUBECONFIG`: for callers that need a new control plane."""
    assets = environment.get("KUBEBUILDER_ASSETS")
    if assets:
        absent = missing(Path(assets))
        if not absent:
            return _use(Path(assets), "KUBEBUILDER_ASSETS", report)
        report(
            f"KUBEBUILDER_ASSETS={assets} has no {', '.join(absent)} (Jobs and garbage collection need "
            "the controller manager, which setup-envtest does not install): trying the next source"
        )
    cache = cache_directory(environment)
    cached = _cached(cache, providers)
    if cached is not None:
        return _use(cached, "the cache", report)
    purpose = "fetch the Kubernetes binaries"
    with locked(cache / "kubernetes.lock", report=report, purpose=purpose, with_children=True):
        cached = _cached(cache, providers)
        if cached is not None:
            return _use(cached, "the cache", report)
        refusals: list[str] = []
        for provider in providers:
            report(f"Kubernetes {provider.version}: trying {provider.description}")
            try:
                provider.fetch(cache, report)
            except DevError as error:
                refusals.append(f"{provider.description}: {error}")
                report(f"not available: {error}")
                continue
            return _use(entry(cache, provider.version), provider.description, report)
    raise DevError(
        "no Kubernetes control plane is available here:\n- "
        + "\n- ".join(refusals)
        + f"\nPut {', '.join(REQUIRED)} into a directory and set KUBEBUILDER_ASSETS to it, or give a cluster "
        "with --kubeconfig."
    )


def missing(directory: Path) -> list[str]:
    """The required programs that `directory` does not have."""
    return [name for name in REQUIRED if not os.access(directory / name, os.X_OK)]


def entry(cache: Path, version: str) -> Path:
    """Where the cache keeps the binaries of one version."""
    return cache / "kubernetes" / version


def _cached(cache: Path, providers: Sequence[Provider]) -> Path | None:
    candidates = (entry(cache, provider.version) for provider in providers)
    return next((candidate for candidate in candidates if not missing(candidate)), None)


def _use(directory: Path, source: str, report: Report) -> Binaries:
    binaries = Binaries(directory.absolute(), _release(directory / "kube-apiserver"))
    major, minor = binaries.release
    report(f"Kubernetes {major}.{minor} from {source}: {directory}")
    return binaries


def _release(kube_apiserver: Path) -> tuple[int, int]:
    answer = subprocess.run([kube_apiserver, "--version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"v(\d+)\.(\d+)\.", answer.stdout)
    if found is None:
        raise DevError(f"`{kube_apiserver} --version` does not say a version: {answer.stdout}{answer.stderr}")
    return int(found[1]), int(found[2])
