"""One Ray cluster with sessions, for all tests of serving that need one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures import RayClusterFactory
from tests.runtime.serving.on_ray.deployment import Deployment
from tests.runtime.serving.plans import EMULATED, REAL
from tests.runtime.serving.sessions import FAILING, LYING, LYING_AS_IT_IS, NETWORK, SHARED, STEADY, TRAFFIC
from tests.runtime.serving.telemetry.collector import Collector, collector

from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_operator.engines.kuberay.pod_drain import DRAIN_VARIABLE

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
sys.path.insert(0, str(EXAMPLES))  # so the cluster can import them


@pytest.fixture(scope="session")
def traces() -> Iterator[Collector]:
    """The receiver of the frontends' traces."""
    with collector() as taking:
        yield taking


@pytest.fixture(scope="session")
def deployment(start_ray: RayClusterFactory, traces: Collector) -> Deployment:
    """All sessions, ready: on two nodes with emulated GPUs, and one node with real models and the frontends.

    Its cluster stops when another test starts one, or after the last of Ray's tests.
    """
    tracing = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces.url,
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    drain = {DRAIN_VARIABLE: "60"}
    nodes = (
        RayClassNode(REAL, slots=8, real_models=True),
        RayClassNode(EMULATED, slots=8),
        RayClassNode(EMULATED, slots=8),
    )
    deployment = Deployment(start_ray(RayClusterConfig(nodes=nodes, environment=tracing | drain)))
    deployment.apply_stages(FAILING, most_on_a_node=1)
    deployment.apply_stages(LYING_AS_IT_IS)
    deployment.apply_frontend(FAILING)
    deployment.apply_frontend(LYING)
    deployment.deploy(TRAFFIC, NETWORK, STEADY, SHARED)
    deployment.until(lambda: deployment.ready(FAILING) and deployment.ready(LYING), "the others serve, too")
    return deployment
