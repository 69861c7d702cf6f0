"""The Gateway API's own CustomResourceDefinitions, and what a controller of Gateways writes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.kubectl import Json, Kubectl, foreign_definitions

DIRECTORY_VARIABLE = "PARTITA_GATEWAY_API_CRDS"
"""The folder config/crd/standard of sigs.k8s.io/gateway-api."""
PLURALS = (
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "referencegrants",
    "tlsroutes",
)


def definitions() -> list[Path]:
    """The files with the definitions. Skips the test if they are not available."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        pytest.skip(f"no definitions of the Gateway API; set {DIRECTORY_VARIABLE} to its config/crd/standard")
    return [Path(directory) / f"gateway.networking.k8s.io_{plural}.yaml" for plural in PLURALS]


@contextmanager
def gateway_api(kubectl: Kubectl) -> Iterator[None]:
    """The Gateway API in a cluster for the duration of a `with` block."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = [yaml.load(path.read_text(), Loader=loader) for path in definitions()]
    with foreign_definitions(kubectl, found):
        yield


def gateway(name: str, *listeners: Json, gateway_class: str = "none") -> Json:
    """The manifest of a Gateway."""
    spec: Json = {"gatewayClassName": gateway_class}
    if listeners:
        spec["listeners"] = list(listeners)
    metadata = {"name": name}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata, "spec": spec}


def listener(**fields: Any) -> Json:
    """A listener for routes from all namespaces."""
    anyone = {"namespaces": {"from": "All"}}
    return {"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": anyone, **fields}


def answer(namespace: Kubectl, kind: str, accepted: bool, reason: str = "Accepted") -> None:
    """What a controller writes about the present spec of the route `traffic`."""
    route = namespace.get(kind, "traffic")
    assert route is not None
    condition = {
        "type": "Accepted",
        "status": "True" if accepted else "False",
        "reason": reason,
        "message": "said the controller",
        "observedGeneration": route["metadata"]["generation"],
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    (parent,) = route["spec"]["parentRefs"]
    parents = [{"parentRef": parent, "controllerName": "example.com/none", "conditions": [condition]}]
    patch = json.dumps({"status": {"parents": parents}})
    namespace("patch", kind, "traffic", "--subresource=status", "--type=merge", "-p", patch)
