"""Where the control plane's programs are looked for, in which order, and what is said on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from partita_devtools.control_plane.binaries import (
    Binaries,
    ExistingCluster,
    Provider,
    cache_directory,
    cache_entry,
    find_binaries,
    find_kubernetes,
    is_at_hand,
)
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, NODE_PROGRAMS, Release
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report


def put_programs(directory: Path, minor: int, programs: Iterable[str] = CONTROL_PLANE_PROGRAMS) -> Path:
    """Stand-ins for the programs; only `--version` is ever asked of them here."""
    directory.mkdir(parents=True, exist_ok=True)
    for program in programs:
        (directory / program).write_text(f"#!/bin/sh\necho Kubernetes v1.{minor}.0\n")
        (directory / program).chmod(0o755)
    return directory


def open_way(minor: int) -> Provider:
    def fetch(release: Release, programs: Sequence[str], directory: Path, report: Report) -> None:
        report(f"fetching {release.name}")
        put_programs(directory, minor, programs)

    return Provider("an open way", fetch)


def closed_way(reason: str) -> Provider:
    def fetch(_release: Release, _programs: Sequence[str], _directory: Path, _report: Report) -> None:
        raise DevError(reason)

    return Provider("a closed way", fetch)


@dataclass(frozen=True)
class Case:
    """What is there, and the minor version that should be found (0: the existing cluster)."""

    name: str
    expected: int
    assets: tuple[str, ...] | None = None
    cached: tuple[str, ...] | None = None
    flag: bool = False
    variable: bool = False
    first_way_open: bool = True


ASSETS_MINOR, CACHED_MINOR, FIRST_MINOR, SECOND_MINOR, CLUSTER = 40, 37, 36, 35, 0
ALL = CONTROL_PLANE_PROGRAMS

CASES = [
    Case("a kubeconfig flag wins over everything", CLUSTER, ALL, ALL, flag=True),
    Case("so does the variable", CLUSTER, ALL, ALL, variable=True),
    Case("KUBEBUILDER_ASSETS comes before the cache", ASSETS_MINOR, ALL, ALL),
    Case("assets without a controller manager are passed over", CACHED_MINOR, ("etcd", "kube-apiserver"), ALL),
    Case("an assets directory that does not exist is passed over", CACHED_MINOR, (), ALL),
    Case("the cache comes before any fetching", CACHED_MINOR, cached=ALL),
    Case("with nothing there the first way is gone", FIRST_MINOR),
    Case("where it is closed the second is", SECOND_MINOR, first_way_open=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lookup_order(case: Case, tmp_path: Path) -> None:
    first = open_way(FIRST_MINOR) if case.first_way_open else closed_way("no network")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    if case.assets is not None:
        environment["KUBEBUILDER_ASSETS"] = str(put_programs(tmp_path / "assets", ASSETS_MINOR, case.assets))
    if case.cached is not None:
        put_programs(cache_entry(environment), CACHED_MINOR, case.cached)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    if case.variable:
        environment["KUBECONFIG"] = str(kubeconfig)
    said: list[str] = []

    found = find_kubernetes(
        report=said.append,
        kubeconfig=kubeconfig if case.flag else None,
        environment=environment,
        providers=[first, open_way(SECOND_MINOR)],
    )

    if case.expected == CLUSTER:
        assert found == ExistingCluster(kubeconfig)
    else:
        assert isinstance(found, Binaries)
        assert found.version == f"v1.{case.expected}.0"
    assert said, "the step that was taken is reported"


def test_a_kubeconfig_that_does_not_exist_is_an_error_rather_than_passed_over(tmp_path: Path) -> None:
    with pytest.raises(DevError, match=r"there is no kubeconfig .*absent"):
        find_kubernetes(report=print, kubeconfig=tmp_path / "absent", environment={}, providers=[])


def test_own_control_planes_disregard_the_kubeconfig_variable(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "production")}
    found = find_binaries(report=print, environment=environment, providers=[open_way(FIRST_MINOR)])
    assert found.directory == tmp_path / "partita/kubernetes" / Release().name


def test_where_every_way_is_closed_the_error_says_why_and_what_to_do(tmp_path: Path) -> None:
    ways = [closed_way("dl.k8s.io does not resolve"), closed_way("no Go module proxy")]
    with pytest.raises(DevError) as raised:
        find_binaries(report=print, environment={"XDG_CACHE_HOME": str(tmp_path)}, providers=ways)
    message = str(raised.value)
    for words in ("dl.k8s.io does not resolve", "no Go module proxy", "KUBEBUILDER_ASSETS", "--kubeconfig"):
        assert words in message


def test_only_the_programs_that_the_cache_lacks_are_fetched(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    directory = put_programs(cache_entry(environment), CACHED_MINOR)
    fetched: list[str] = []

    def fetch(_release: Release, programs: Sequence[str], directory: Path, _report: Report) -> None:
        fetched.extend(programs)
        put_programs(directory, FIRST_MINOR, programs)

    found = find_binaries(
        report=print,
        programs=(*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS),
        environment=environment,
        providers=[Provider("a way", fetch)],
    )
    assert tuple(fetched) == NODE_PROGRAMS
    assert found == Binaries(directory, f"v1.{CACHED_MINOR}.0")


def test_another_version_of_kubernetes_is_fetched_and_cached_beside_the_pinned_one(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    put_programs(cache_entry(environment), CACHED_MINOR)
    older = {**environment, "PARTITA_KUBERNETES": "v1.34.4"}
    assert is_at_hand(None, environment)
    assert not is_at_hand(None, older)
    found = find_binaries(report=print, environment=older, providers=[open_way(34)])
    assert found.directory.name.startswith("v1.34.4_")
    assert found.directory.parent == cache_directory(environment) / "kubernetes"


@pytest.mark.parametrize("version", ["1.34.4", "v1.34", "latest", "v1.34.4/../../x"])
def test_a_version_of_another_form_is_refused_before_anything_is_fetched(version: str, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PARTITA_KUBERNETES": version}
    with pytest.raises(DevError, match=r"PARTITA_KUBERNETES=.* write it as v1\.\d+\.\d+"):
        find_binaries(report=print, environment=environment, providers=[open_way(FIRST_MINOR)])
    assert list(tmp_path.iterdir()) == []


def test_two_callers_fetch_once(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    fetching, other_waits = threading.Event(), threading.Event()
    fetched: list[str] = []

    def fetch(_release: Release, programs: Sequence[str], directory: Path, _report: Report) -> None:
        fetched.append("once")
        fetching.set()
        assert other_waits.wait(30), "the other caller never came to wait"
        put_programs(directory, FIRST_MINOR, programs)

    def report_of_other(line: str) -> None:
        if line.startswith("waiting for another process to fetch"):
            other_waits.set()

    way = Provider("a slow way", fetch)
    found: list[Binaries] = []

    def look(report: Report) -> None:
        found.append(find_binaries(report=report, environment=environment, providers=[way]))

    first = threading.Thread(target=look, args=(print,))
    first.start()
    assert fetching.wait(30)
    second = threading.Thread(target=look, args=(report_of_other,))
    second.start()
    first.join(30)
    second.join(30)
    assert fetched == ["once"]
    assert [binaries.version for binaries in found] == [f"v1.{FIRST_MINOR}.0"] * 2
