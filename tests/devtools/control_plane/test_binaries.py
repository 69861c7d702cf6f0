"""Where the control plane's programs are looked for, in which order, and what is said on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from partita_devtools.control_plane.binaries import (
    REQUIRED,
    Binaries,
    ExistingCluster,
    Provider,
    cache_directory,
    entry,
    find_binaries,
    find_kubernetes,
)
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report


def put_programs(directory: Path, minor: int, programs: Iterable[str] = REQUIRED) -> Path:
    """Stand-ins for the programs; only `--version` is ever asked of them here."""
    directory.mkdir(parents=True, exist_ok=True)
    for program in programs:
        (directory / program).write_text(f"#!/bin/sh\necho Kubernetes v1.{minor}.0\n")
        (directory / program).chmod(0o755)
    return directory


def open_way(version: str, minor: int) -> Provider:
    def fetch(cache: Path, report: Report) -> None:
        report(f"fetching {version}")
        put_programs(entry(cache, version), minor)

    return Provider(f"way to {version}", version, fetch)


def closed_way(version: str, reason: str) -> Provider:
    def fetch(_cache: Path, _report: Report) -> None:
        raise DevError(reason)

    return Provider(f"way to {version}", version, fetch)


@dataclass(frozen=True)
class Case:
    """What is there, and the minor version that should be found (0: the existing cluster)."""

    name: str
    expected: int
    assets: tuple[str, ...] | None = None
    cached: tuple[str, ...] = ()
    flag: bool = False
    variable: bool = False
    first_way_open: bool = True


ASSETS_MINOR, FIRST_MINOR, SECOND_MINOR, CLUSTER = 40, 33, 20, 0

CASES = [
    Case("a kubeconfig flag wins over everything", CLUSTER, REQUIRED, ("first",), flag=True),
    Case("so does the variable", CLUSTER, REQUIRED, ("first",), variable=True),
    Case("KUBEBUILDER_ASSETS comes before the cache", ASSETS_MINOR, REQUIRED, ("first",)),
    Case("assets without a controller manager are passed over", FIRST_MINOR, ("etcd", "kube-apiserver"), ("first",)),
    Case("an assets directory that does not exist is passed over", FIRST_MINOR, (), ("first",)),
    Case("the cache comes before any fetching", SECOND_MINOR, cached=("second",)),
    Case("the better of two cached versions is taken", FIRST_MINOR, cached=("second", "first")),
    Case("with nothing there the first way is gone", FIRST_MINOR),
    Case("where it is closed the second is", SECOND_MINOR, first_way_open=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lookup_order(case: Case, tmp_path: Path) -> None:
    minors = {"first": FIRST_MINOR, "second": SECOND_MINOR}
    first = open_way("first", FIRST_MINOR) if case.first_way_open else closed_way("first", "no network")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    if case.assets is not None:
        environment["KUBEBUILDER_ASSETS"] = str(put_programs(tmp_path / "assets", ASSETS_MINOR, case.assets))
    for version in case.cached:
        put_programs(entry(cache_directory(environment), version), minors[version])
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    if case.variable:
        environment["KUBECONFIG"] = str(kubeconfig)
    said: list[str] = []

    found = find_kubernetes(
        report=said.append,
        kubeconfig=kubeconfig if case.flag else None,
        environment=environment,
        providers=[first, open_way("second", SECOND_MINOR)],
    )

    if case.expected == CLUSTER:
        assert found == ExistingCluster(kubeconfig)
    else:
        assert isinstance(found, Binaries)
        assert found.release == (1, case.expected)
    assert said, "the step that was taken is reported"


def test_a_kubeconfig_that_does_not_exist_is_an_error_rather_than_passed_over(tmp_path: Path) -> None:
    with pytest.raises(DevError, match=r"there is no kubeconfig .*absent"):
        find_kubernetes(report=print, kubeconfig=tmp_path / "absent", environment={}, providers=[])


def test_own_control_planes_disregard_the_kubeconfig_variable(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "production")}
    found = find_binaries(report=print, environment=environment, providers=[open_way("first", FIRST_MINOR)])
    assert found.directory == tmp_path / "partita/kubernetes/first"


def test_where_every_way_is_closed_the_error_says_why_and_what_to_do(tmp_path: Path) -> None:
    ways = [closed_way("first", "dl.k8s.io does not resolve"), closed_way("second", "not Debian 12")]
    with pytest.raises(DevError) as raised:
        find_binaries(report=print, environment={"XDG_CACHE_HOME": str(tmp_path)}, providers=ways)
    message = str(raised.value)
    for words in ("dl.k8s.io does not resolve", "not Debian 12", "KUBEBUILDER_ASSETS", "--kubeconfig"):
        assert words in message


def test_an_entry_without_all_programs_is_fetched_again(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    put_programs(entry(cache_directory(environment), "first"), FIRST_MINOR, ["etcd"])
    found = find_binaries(report=print, environment=environment, providers=[open_way("first", FIRST_MINOR)])
    assert found.release == (1, FIRST_MINOR)


def test_two_callers_fetch_once(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    fetching, other_waits = threading.Event(), threading.Event()
    fetched: list[str] = []

    def fetch(cache: Path, _report: Report) -> None:
        fetched.append("once")
        fetching.set()
        assert other_waits.wait(30), "the other caller never came to wait"
        put_programs(entry(cache, "slow"), FIRST_MINOR)

    def report_of_other(line: str) -> None:
        if line.startswith("waiting for another process to fetch"):
            other_waits.set()

    way = Provider("a slow way", "slow", fetch)
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
    assert [binaries.release for binaries in found] == [(1, FIRST_MINOR)] * 2
