"""A node whose processes are slow to start, and what is said of one that Ray itself ended."""

from pathlib import Path

import pytest

from partita_devtools.ray_cluster.cluster import ray_cluster
from partita_devtools.ray_cluster.commands import RayClusterConfig
from partita_devtools.ray_cluster.logs import fatal_errors

SLOW_AGENT = """
import sys, time
if any(argument.endswith("dashboard/agent.py") for argument in sys.orig_argv):
    time.sleep(20)
"""
"""Python runs it at each start: Ray's dashboard agent then takes longer than the 15 s that the raylet waits for it."""

RAYLET_LOG = """\
[2026-11-25 19:47:43,759 I 5308 5333] (raylet) agent_manager.cc:81: Monitor agent process with name dashboard_agent
[2026-11-25 19:47:59,091 C 5308 5308] (raylet) node_manager.cc:3588: Check failed: Timed out waiting for file /tmp/port
*** StackTrace Information ***
[2026-11-25 19:47:59,099 E 5308 5308] (raylet) worker.cc:1: An error that ends nothing
"""


@pytest.mark.ray
@pytest.mark.usefixtures("no_other_cluster")
def test_a_node_joins_though_its_agent_starts_slowly(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_AGENT)
    config = RayClusterConfig(nodes=(), head_cpus=1, environment={"PYTHONPATH": str(tmp_path)})
    with ray_cluster(tmp_path / "state", config) as cluster:
        assert cluster.health() == {"head": "ok"}


def test_the_errors_that_ended_a_raylet_are_found(tmp_path: Path) -> None:
    log = tmp_path / "raylet.out"
    log.write_text(RAYLET_LOG)
    (tmp_path / "gcs_server.out").write_text(RAYLET_LOG.splitlines()[0])
    assert fatal_errors(tmp_path) == [
        f"{log}: node_manager.cc:3588: Check failed: Timed out waiting for file /tmp/port"
    ]
    assert fatal_errors(tmp_path / "none") == []
