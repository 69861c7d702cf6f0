"""Finds the programs of a Kubernetes cluster, or downloads or builds them once.

The order: a cluster given by its kubeconfig (no programs needed), the directory `KUBEBUILDER_ASSETS`, the cache, a
download of the official release, and, if the network allows only the Go module proxy, a build from Go modules. The last
two fill the cache.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.control_plane.go_build import build_from_go_modules
from partita_devtools.control_plane.release_download import download_release
from partita_devtools.control_plane.releases import API_SERVER, CONTROL_PLANE_PROGRAMS, CONTROLLER_MANAGER, Release
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that is there already: it is used, never started or stopped."""

    kubeconfig: Path


@dataclass(frozen=True)
class Binaries:
    """A directory with programs of Kubernetes that work together, and Kubernetes' version."""

    directory: Path
    version: str
    """Such as v1.37.2."""

    def path(self, program: str) -> str:
        """Path of a program."""
        return str(self.directory / program)


@dataclass(frozen=True)
class Provider:
    """A way to fill the cache.

    `fetch(release, programs, directory, report)` puts programs of a release into a directory, each in one step. It
    raises DevError with the reason if this is not possible here.
    """

    description: str
    fetch: Callable[[Release, Sequence[str], Path, Report], None]


PROVIDERS: tuple[Provider, ...] = (
    Provider("a download of the official release", download_release),
    Provider("a build from Go modules", build_from_go_modules),
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
        or not missing(cache_entry(environment))
    )


def find_binaries(
    *,
    report: Report,
    programs: Sequence[str] = CONTROL_PLANE_PROGRAMS,
    environment: Mapping[str, str] = os.environ,
    providers: Sequence[Provider] = PROVIDERS,
) -> Binaries:
    """Like `find_kubernetes`, but ignores `KUBECONFIG`: for callers that need a new control plane.

    `programs` are what the directory must have.
    """
    assets = environment.get("KUBEBUILDER_ASSETS")
    if assets:
        absent = missing(Path(assets), programs)
        if not absent:
            return _use(Path(assets), "KUBEBUILDER_ASSETS", report)
        report(f"KUBEBUILDER_ASSETS={assets} has no {', '.join(absent)}: trying the next source{_controllers(absent)}")
    directory = cache_entry(environment)
    if not missing(directory, programs):
        return _use(directory, "the cache", report)
    purpose = "fetch the Kubernetes binaries"
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent.parent / "kubernetes.lock", report=report, purpose=purpose, with_children=True):
        if not (absent := missing(directory, programs)):
            return _use(directory, "the cache", report)
        release = Release.of(environment)
        refusals: list[str] = []
        for provider in providers:
            report(f"Kubernetes {release.kubernetes}: trying {provider.description}")
            try:
                provider.fetch(release, absent, directory, report)
            except DevError as error:
                refusals.append(f"{provider.description}: {error}")
                report(f"not available: {error}")
                continue
            return _use(directory, provider.description, report)
    raise DevError(
        "no Kubernetes control plane is available here:\n- "
        + "\n- ".join(refusals)
        + f"\nPut {', '.join(programs)} into a directory and set KUBEBUILDER_ASSETS to it, or give a cluster "
        "with --kubeconfig."
    )


def missing(directory: Path, programs: Sequence[str] = CONTROL_PLANE_PROGRAMS) -> list[str]:
    """Those of `programs` that `directory` does not have."""
    return [name for name in programs if not os.access(directory / name, os.X_OK)]


def cache_entry(environment: Mapping[str, str]) -> Path:
    """Where the cache keeps the programs of the release that runs here. Raises DevError if its version is none."""
    return cache_directory(environment) / "kubernetes" / Release.of(environment).name


def _controllers(absent: Sequence[str]) -> str:
    if list(absent) != [CONTROLLER_MANAGER]:
        return ""
    return " (Jobs and garbage collection need the controller manager, which setup-envtest does not install)"


def _use(directory: Path, source: str, report: Report) -> Binaries:
    binaries = Binaries(directory.absolute(), _version(directory / API_SERVER))
    report(f"Kubernetes {binaries.version} from {source}: {directory}")
    return binaries


def _version(kube_apiserver: Path) -> str:
    answer = subprocess.run([kube_apiserver, "--version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"v\d+\.\d+\.\S+", answer.stdout)
    if found is None:
        raise DevError(f"`{kube_apiserver} --version` does not say a version: {answer.stdout}{answer.stderr}")
    return found[0]
