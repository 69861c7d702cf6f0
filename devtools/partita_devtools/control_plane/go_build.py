"""Builds the programs of a release from Go modules, where only the Go module proxy can be reached.

Go checks every module against the checksum database. Each build is a small module of its own that requires the
program's module, in place of the program's repository. Kubernetes' libraries are modules of their own, which its
`go.mod` replaces by folders of its repository; here their released versions replace them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_devtools.control_plane.go_toolchain import find_go
from partita_devtools.control_plane.releases import CONTAINERD_PROGRAMS, COREDNS, ETCD, KUBERNETES_PROGRAMS, Release
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged

_KUBERNETES: Final = "k8s.io/kubernetes"
_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_LIBRARY: Final = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/src/\1$", re.MULTILINE)
_LOG: Final = "build.log"


@dataclass(frozen=True)
class GoProgram:
    """A program of a Go module, and how it is built."""

    name: str
    module: str
    version: str
    package: str
    """The main package's path within the module; empty: the module's root."""
    variables: Mapping[str, str]
    """Variables of packages that the linker sets."""
    usual_s: int
    """Seconds that it takes on two free cores after the programs before it, if no package is downloaded."""
    tags: str = ""

    @property
    def path(self) -> str:
        """The main package's import path."""
        return f"{self.module}/{self.package}".rstrip("/")


def build_from_go_modules(release: Release, programs: Sequence[str], directory: Path, report: Report) -> None:
    """Build `programs` of a release into `directory`, whose `build.log` has the output of Go.

    The control plane takes 6 to 8 minutes on two cores, and 4 GB of disk for Go's own caches, which also let an
    interrupted build go on where it was. Raises DevError if Go or a module cannot be had, or if the build fails.
    """
    log = directory / _LOG
    chosen = [program for program in go_programs(release) if program.name in programs]
    with tempfile.TemporaryDirectory(prefix=".modules-", dir=directory) as modules:
        go = _Go(find_go(directory.parent.parent, log, report), Path(modules), log, report)
        for number, program in enumerate(chosen, start=1):
            go.build(program, directory, f"building {program.name} {program.version} ({number} of {len(chosen)})")


def go_programs(release: Release) -> list[GoProgram]:
    """All programs of a release, in the order in which they are built."""
    major, minor, _ = release.kubernetes.removeprefix("v").split(".")
    version = {
        f"k8s.io/component-base/version.{name}": value
        for name, value in (("gitVersion", release.kubernetes), ("gitMajor", major), ("gitMinor", minor))
    }
    containerd = {f"{_CONTAINERD}/version.Version": release.containerd}
    without = "no_btrfs no_devmapper no_zfs"
    seconds = dict(zip(KUBERNETES_PROGRAMS, (300, 60, 30, 20, 60), strict=True))
    return [
        GoProgram(ETCD, "go.etcd.io/etcd/server/v3", release.etcd, "", {}, 40),
        *(
            GoProgram(name, _KUBERNETES, release.kubernetes, f"cmd/{name}", version, seconds[name])
            for name in KUBERNETES_PROGRAMS
        ),
        *(
            GoProgram(name, _CONTAINERD, release.containerd, f"cmd/{name}", containerd, 20, without)
            for name in CONTAINERD_PROGRAMS
        ),
        GoProgram(COREDNS, "github.com/coredns/coredns", release.coredns, "", {}, 150),
    ]


@dataclass(frozen=True)
class _Go:
    """A Go that builds with the settings of all programs here."""

    program: Path
    modules: Path
    """Directory of the modules that require the programs' modules."""
    log: Path
    report: Report

    @property
    def environment(self) -> Mapping[str, str]:
        # Go must neither fetch another Go nor look for a repository around the module.
        return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod", "GOTOOLCHAIN": "local"}

    def build(self, program: GoProgram, directory: Path, phase: str) -> None:
        """Build one program into `directory`, where it appears complete."""
        module = self.modules / program.module.replace("/", "-")
        if not (module / "go.mod").exists():  # programs of one module share it
            module.mkdir(parents=True, exist_ok=True)
            (module / "go.mod").write_text(self._go_mod(program, module), encoding="utf-8")
        set_variables = "".join(f" -X {name}={value}" for name, value in program.variables.items())
        run_logged(
            [
                *(str(self.program), "build", "-v", "-trimpath", "-tags", program.tags),
                *("-ldflags", f"-s -w{set_variables}", "-o", str(module / program.name), program.path),
            ],
            phase=phase,
            log=self.log,
            report=self.report,
            environment=self.environment,
            directory=module,
            usual_s=program.usual_s,
        )
        (module / program.name).rename(directory / program.name)

    def _go_mod(self, program: GoProgram, directory: Path) -> str:
        """A module that requires the program's. A library's version is v0.MINOR.PATCH for v1.MINOR.PATCH."""
        libraries = _LIBRARY.findall(self._go_mod_of(program, directory)) if program.module == _KUBERNETES else []
        library_version = program.version.replace("v1.", "v0.", 1)
        lines = [
            "module partita.local/build",
            "go 1.26.0",
            f"require {program.module} {program.version}",
            *(f"replace {library} => {library} {library_version}" for library in libraries),
        ]
        return "\n".join(lines) + "\n"

    def _go_mod_of(self, program: GoProgram, directory: Path) -> str:
        """The text of a released module's go.mod. Raises DevError if the module proxy cannot be reached."""
        argv = [str(self.program), "mod", "download", "-json", f"{program.module}@{program.version}"]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={**self.environment, "GOFLAGS": ""},
        )
        answer = json.loads(done.stdout or "{}")
        if done.returncode or "GoMod" not in answer:
            why = answer.get("Error") or (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise DevError(f"cannot download the Go module {program.module} {program.version}: {why}")
        return Path(answer["GoMod"]).read_text(encoding="utf-8")
