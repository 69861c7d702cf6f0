"""Fixtures that tests of any room share: one control plane for the session, and Ray clusters.

Use as a plugin: `pytest_plugins = ["tests.fixtures"]`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from partita_devtools.control_plane import control_plane as control_planes
from partita_devtools.control_plane.binaries import Binaries, find_binaries
from partita_devtools.control_plane.control_plane import ControlPlane
from partita_devtools.errors import DevError
from partita_devtools.ray_cluster import cluster as ray_clusters
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig

RayClusterFactory = Callable[[RayClusterConfig], RayCluster]


@pytest.fixture(scope="session")
def kubernetes_binaries() -> Binaries:
    """The control plane's programs, built on first use; the test is skipped where they cannot be had."""
    try:
        return find_binaries(report=print)
    except DevError as error:
        pytest.skip(f"no Kubernetes control plane: {error}")


@pytest.fixture(scope="session")
def control_plane(kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that all tests of the session share: use namespaces and names of your own.

    A test that takes the API server away must bring it back. `KUBECONFIG` is never used.
    """
    state_dir = tmp_path_factory.mktemp("control-plane")
    with control_planes.control_plane(state_dir, binaries=kubernetes_binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def start_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayClusterFactory]:
    """Starts Ray clusters; tests that ask for the same configuration share one.

    The packages importable here are importable in the cluster.
    """
    started: list[RayCluster] = []
    with ExitStack() as running:

        def start(config: RayClusterConfig) -> RayCluster:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            config = replace(config, environment={"PYTHONPATH": path, **config.environment})
            for cluster in started:
                if cluster.config == config:
                    return cluster
            state_dir = tmp_path_factory.mktemp("ray")
            try:
                cluster = running.enter_context(ray_clusters.ray_cluster(state_dir, config))
            except DevError as error:
                if "not installed" in str(error):
                    pytest.skip(f"no Ray: {error}")
                raise
            started.append(cluster)
            return cluster

        yield start


@pytest.fixture(scope="session")
def ray_cluster(start_ray: RayClusterFactory) -> RayCluster:
    """A cluster of two classes that tests share: `large` with 4 slots and `small` with 8."""
    return start_ray(
        RayClusterConfig(nodes=(RayClassNode("large", slots=4), RayClassNode("small", slots=8, labels={"tier": "low"})))
    )


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A fresh state directory."""
    return tmp_path / "state"
