"""What `partita local` says of input that it cannot use, and without Ray."""

import os
import shlex
from pathlib import Path

import pytest
from tests.builders import pool
from tests.devtools.local.conftest import Command

from partita_devtools.environment import DevEnvironment
from partita_devtools.local.environment import add_pools
from partita_devtools.local.logs import LogFile, read_logs
from partita_devtools.ray_cluster.cluster import RayCluster

MANIFEST = """
apiVersion: partita.dev/v1alpha1
kind: GPUPool
metadata: {name: cpu}
spec: {count: 2, pricePerHour: "1"}
"""


@pytest.mark.parametrize(
    ("manifest", "want_code", "want"),
    [
        pytest.param(MANIFEST.replace("count: 2", "count: -2"), 2, "spec.count", id="wrong value"),
        pytest.param("kind: Deployment\napiVersion: apps/v1\n", 2, "leave out: Deployment", id="unknown kind"),
        pytest.param(MANIFEST.replace("GPUPool", "Pool"), 2, "has no kind 'Pool'", id="kind of no such name"),
        pytest.param("a: [1", 2, "is not YAML", id="no YAML"),
        pytest.param(MANIFEST, 1, "local mode does not run", id="not started"),
    ],
)
def test_what_cannot_be_applied(local: Command, tmp_path: Path, manifest: str, want_code: int, want: str) -> None:
    (tmp_path / "manifest.yaml").write_text(manifest)
    result = local("apply", "-f", str(tmp_path / "manifest.yaml"))
    assert (result.exit_code, want in result.output) == (want_code, True), result.output
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("command", "want_code", "want"),
    [
        ("apply", 2, "give manifests with -f"),
        ("delete", 2, "give what to delete"),
        ("delete isess", 2, "give the name, too: isess/NAME"),
        ("get pods", 2, "names no kind of local mode"),
        ("get", 1, "local mode does not run"),
        ("describe isess", 2, "give the name, too"),
        ("describe pods/a", 2, "names no kind of local mode"),
        ("delete pods/a", 2, "names no kind of local mode"),
        ("url isess/", 2, "give the name, too: isess/NAME"),
        ("url traffic", 1, "local mode does not run"),
        ("logs", 1, "local mode does not run"),
        ("status", 1, "nothing was started"),
        ("down", 0, ""),
    ],
)
def test_commands_before_the_start(local: Command, command: str, want_code: int, want: str) -> None:
    name, *arguments = shlex.split(command)
    result = local(name, *arguments)
    assert (result.exit_code, want in result.output) == (want_code, True), result.output


def test_objects_without_an_operator(local: Command, running: Path, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(MANIFEST)
    assert "gpool/cpu applied" in local("apply", "-f", str(tmp_path / "pool.yaml")).output
    assert "cpu" in local("get", "gpool").output
    assert "there is no isess/shop in namespace default; there are: none" in local("get", "isess/shop").output
    assert "pricePerHour: '1'" in local("describe", "gpool/cpu").output
    assert "does not answer" in local("logs", "shop").output or "GET http" in local("logs", "shop").output
    assert "gpool/cpu deleted" in local("delete", "-f", str(tmp_path / "pool.yaml")).output
    assert "gpool/cpu does not exist" in local("delete", "gpool/cpu").output
    assert os.listdir(running / "objects" / "gpupools") == []


def test_a_pool_of_another_size_is_refused_with_what_to_do(running: Path) -> None:
    ray = RayCluster(running)
    environment = DevEnvironment(running, running / "kubeconfig", None, ray)
    add_pools(environment, [pool("cpu").gpus(2).build()], running, print)
    with pytest.raises(Exception, match=r"has 2 accelerators here, and its manifest has 4.*partita local down"):
        add_pools(environment, [pool("cpu").gpus(4).build()], running, print)


def test_logs_are_filtered_and_labelled(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(":job_id:1\nfirst\nsecond yes\nthird yes\n")
    assert list(read_logs([LogFile("operator", path)], 1, "yes")) == ["operator: third yes"]
    assert list(read_logs([LogFile("operator", path)], 9, "")) == [
        "operator: first",
        "operator: second yes",
        "operator: third yes",
    ]
