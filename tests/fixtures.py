"""Fixtures that tests of all packages share: one control plane for the session, and Ray clusters.

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

from partita_devtools.control_plane import lifecycle as control_planes
from partita_devtools.control_plane.binaries import Binaries, find_binaries
from partita_devtools.control_plane.lifecycle import ControlPlane
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


class RayClusters:
    """Starts Ray clusters, one at a time. An idle cluster takes CPU time from the start of another one."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        self._new_directory = new_directory
        self._cluster: RayCluster | None = None
        self._running = ExitStack()

    def start(self, config: RayClusterConfig) -> RayCluster:
        """The cluster with this configuration: the running one, or a new one in its place.

        The packages importable here are importable in the cluster.
        """
        path = os.pathsep.join(entry for entry in sys.path if entry)
        config = replace(config, environment={"PYTHONPATH": path, **config.environment})
        if self._cluster is not None and self._cluster.config == config:
            return self._cluster
        self.stop()
        try:
            self._cluster = self._running.enter_context(ray_clusters.ray_cluster(self._new_directory(), config))
        except DevError as error:
            if "not installed" in str(error):
                pytest.skip(f"no Ray: {error}")
            raise
        return self._cluster

    def stop(self) -> None:
        """Stop the running cluster, if there is one."""
        self._cluster = None
        self._running.close()


RAY_CLUSTERS = pytest.StashKey[RayClusters]()


@pytest.fixture(scope="session")
def started_clusters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayClusters]:
    """The Ray clusters of all tests."""
    clusters = RayClusters(lambda: tmp_path_factory.mktemp("ray"))
    request.config.stash[RAY_CLUSTERS] = clusters
    yield clusters
    clusters.stop()


@pytest.fixture(scope="session")
def start_ray(started_clusters: RayClusters) -> RayClusterFactory:
    """Starts a Ray cluster, and stops the one before it unless it has the same configuration."""
    return started_clusters.start


@pytest.fixture
def ray_cluster(start_ray: RayClusterFactory) -> RayCluster:
    """A cluster of two classes that tests share: `large` with 4 slots and `small` with 8."""
    return start_ray(
        RayClusterConfig(nodes=(RayClassNode("large", slots=4), RayClassNode("small", slots=8, labels={"tier": "low"})))
    )


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A fresh state directory."""
    return tmp_path / "state"
