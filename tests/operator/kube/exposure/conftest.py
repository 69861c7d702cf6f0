"""A namespace on the real API server, and operators whose sessions have pods there."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kube.exposure.sessions import FRONTEND, SELECTOR
from tests.operator.kubectl import Kubectl, cluster_with_crds, pool

from partita_api.inferencesession import EngineType
from partita_operator.ports import SessionBackend
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings

cluster = cluster_with_crds


@pytest.fixture
def namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """A namespace with a pool."""
    name = f"addresses-{uuid4().hex[:8]}"
    cluster("create", "namespace", name)
    made = Kubectl(cluster.kubeconfig, name)
    made.apply(pool(name))
    yield made
    cluster.clear(name)


@pytest.fixture
def operators(namespace: Kubectl) -> Operators:
    """Operators whose sessions have pods."""
    made = Operators(namespace.kubeconfig)
    kuberay = KubeRaySettings(image="registry/serving:1")
    made.settings = OperatorSettings(
        resync_seconds=0.5, namespaces=(namespace.namespace,), kuberay=kuberay, default_engine=EngineType.KUBERAY
    )
    backend = SessionBackend(SELECTOR, 8000, (FRONTEND,))
    made.engine.backends[f"{namespace.namespace}/traffic"] = backend
    return made
