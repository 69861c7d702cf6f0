"""The pods that take a session's requests, from a RayService, its pods and what frontends report."""

from typing import Any

import pytest

from partita_operator.engines.kuberay.backend import session_backend
from partita_operator.engines.kuberay.rayservice_manifest import rayservice, serve_config
from partita_operator.ports import GRPC, HTTP_DIRECT, FrontendPort, ServingStatus, SessionBackend
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.deploy.applications import frontend_name

Json = dict[str, Any]
KEY = "vision/traffic"
ACTIVE = {"activeServiceStatus": {"rayClusterName": "partita-one"}, "pendingServiceStatus": {"rayClusterName": "next"}}
SELECTOR = {"ray.io/cluster": "partita-one", "ray.io/serve": "true"}
REPORTED = ServingStatus(http_address="10.0.0.1:31000", grpc_address="10.0.0.1:31001,[fd00::2]:32000")


def serving(status: Json, key: str = KEY) -> Json:
    text = serve_config([{"name": frontend_name(key)}])
    made = rayservice("vision", [], [], None, KubeRaySettings(image="x"))
    return {**made, "spec": {**made["spec"], "serveConfigV2": text}, "status": status}


def pod(name: str, *ips: str, phase: str = "Running", **meta: Any) -> Json:
    status = {"phase": phase, "podIPs": [{"ip": ip} for ip in ips]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", **meta}, "spec": {"nodeName": "node"}, "status": status}


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(None, id="no RayService"),
        pytest.param(serving({}), id="no Ray cluster yet"),
        pytest.param(serving(ACTIVE, "vision/other"), id="no frontend of the session"),
    ],
)
def test_there_are_no_pods_without_a_ray_cluster_for_the_session(service: Json | None) -> None:
    assert session_backend(KEY, service, REPORTED, []) is None


def test_the_selector_follows_the_ray_cluster_that_serves_while_no_frontend_answers() -> None:
    assert session_backend(KEY, serving(ACTIVE), None, []) == SessionBackend(SELECTOR, 8000)
    assert session_backend(KEY, serving(ACTIVE), ServingStatus(), []) == SessionBackend(SELECTOR, 8000)


def test_the_first_ray_cluster_has_a_service_before_it_serves() -> None:
    first = serving({"pendingServiceStatus": {"rayClusterName": "partita-one"}})
    assert session_backend(KEY, first, None, []) == SessionBackend(SELECTOR, 8000)


def test_ports_of_frontends_belong_to_pods() -> None:
    found = session_backend(KEY, serving(ACTIVE), REPORTED, [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", "fd00::2")])

    assert found is not None
    assert found.unknown == ()
    assert found.frontends == (
        FrontendPort(HTTP_DIRECT, "10.0.0.1", 31000, "a", "uid-a", "node"),
        FrontendPort(GRPC, "10.0.0.1", 31001, "a", "uid-a", "node"),
        FrontendPort(GRPC, "fd00::2", 32000, "b", "uid-b", "node"),
    )


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([], id="no pod"),
        pytest.param([pod("a", "10.0.0.1", phase="Failed"), pod("b", "fd00::2", phase="Pending")], id="not running"),
        pytest.param(
            [pod("a", "10.0.0.1", deletionTimestamp="now"), pod("b", "fd00::2", deletionTimestamp="now")],
            id="terminating",
        ),
    ],
)
def test_an_address_without_a_running_pod_is_not_used(found: list[Json]) -> None:
    backend = session_backend(KEY, serving(ACTIVE), REPORTED, found)

    assert backend is not None
    assert backend.frontends == ()
    assert backend.unknown == ("10.0.0.1:31000", "10.0.0.1:31001", "fd00::2:32000")
