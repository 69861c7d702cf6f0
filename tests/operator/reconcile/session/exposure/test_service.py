"""A session's Service and EndpointSlices, its addresses, and the condition Exposed."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import session

from partita_api.inferencesession import EngineType, InferenceSessionStatus
from partita_operator.ports import GRPC, HTTP_DIRECT, FrontendPort, ServingStatus, SessionBackend
from partita_operator.reconcile.actions import ApplyObject, DeleteObject
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.object_changes import marked, object_changes, object_name
from partita_operator.reconcile.session.exposure.decision import Exposure, expose
from partita_operator.reconcile.session.exposure.service import endpoint_slices, service
from partita_operator.reconcile.world import ExposureWorld, PublicWorld, SessionWorld
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings

SETTINGS = OperatorSettings(kuberay=KubeRaySettings(image="x"), default_engine=EngineType.KUBERAY)
PLAIN = session("traffic").model("detector").build()
FAST = session("traffic").model("detector").with_spec(frontend={"httpPort": 0, "grpcPort": 0}).build()
SELECTOR = {"ray.io/cluster": "one"}
HTTP_PORT = FrontendPort(HTTP_DIRECT, "10.0.0.1", 31000, "a", "uid-a", "node")
GRPC_PORT = FrontendPort(GRPC, "fd00::1", 32000, "b", "uid-b")
BACKEND = SessionBackend(SELECTOR, 8000, (HTTP_PORT, GRPC_PORT))
OF_ENGINE = ServingStatus(url="http://engine/default/traffic", http_address="10.0.0.1:31000")
URL = "http://traffic.default.svc/default/traffic"


def stored(*manifests: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The manifests as objects of the API server."""
    return tuple(
        {**marked(m), "metadata": {**marked(m)["metadata"], "uid": f"uid-{n}"}} for n, m in enumerate(manifests)
    )


def exposure(world: ExposureWorld | None, of: Any = FAST, serving: ServingStatus | None = OF_ENGINE) -> Exposure:
    return expose(SessionWorld(session=of, cluster=Cluster(), settings=SETTINGS, serving=serving, exposure=world))


def reason(found: Exposure) -> tuple[bool, str]:
    assert found.finding is not None
    return found.finding.status is True, str(found.finding.reason)


MADE = stored(service(FAST, BACKEND), *endpoint_slices(FAST, BACKEND))


@pytest.mark.parametrize(
    ("world", "want", "url", "writes"),
    [
        pytest.param(None, None, None, 0, id="not read yet"),
        pytest.param(ExposureWorld(), (False, "WaitingForRayCluster"), None, 0, id="no Ray cluster serves"),
        pytest.param(ExposureWorld(BACKEND), (False, "WaitingForRayCluster"), URL, 3, id="first write"),
        pytest.param(
            ExposureWorld(BACKEND, problem="refused."), (False, "ExposureFailed"), OF_ENGINE.url, 3, id="it is refused"
        ),
        pytest.param(ExposureWorld(BACKEND, MADE), (True, "ServiceReady"), URL, 0, id="settled"),
        pytest.param(ExposureWorld(None, MADE), (True, "ServiceReady"), URL, 0, id="the Ray cluster is away"),
        pytest.param(
            ExposureWorld(SessionBackend(SELECTOR, 8000), MADE),
            (True, "ServiceReady"),
            URL,
            0,
            id="no frontend answers",
        ),
        pytest.param(
            ExposureWorld(SessionBackend({"ray.io/cluster": "two"}, 8000), MADE),
            (True, "ServiceReady"),
            URL,
            1,
            id="another Ray cluster",
        ),
        pytest.param(
            ExposureWorld(BACKEND, taken=frozenset({("Service", "traffic")})),
            (False, "NameTaken"),
            OF_ENGINE.url,
            0,
            id="name taken",
        ),
        pytest.param(
            ExposureWorld(BACKEND, MADE, problem="refused."), (False, "ExposureFailed"), URL, 0, id="a write failed"
        ),
    ],
)
def test_the_condition_says_what_is_missing(
    world: ExposureWorld | None, want: tuple[bool, str] | None, url: str | None, writes: int
) -> None:
    found = exposure(world)

    assert (reason(found) if found.finding else None) == want
    assert found.url == url
    assert len(found.actions) == writes


def test_a_moved_frontend_has_its_new_slice_before_the_old_one_is_deleted() -> None:
    moved = replace(HTTP_PORT, port=31001)
    found = exposure(ExposureWorld(SessionBackend(SELECTOR, 8000, (moved, GRPC_PORT)), MADE))

    added, removed = found.actions
    assert isinstance(added, ApplyObject)
    assert added.manifest["ports"][0]["port"] == moved.port
    assert removed == DeleteObject("discovery.k8s.io/v1", *object_name(MADE[1]), uid="uid-1")


def test_addresses_are_those_of_the_service_where_it_has_endpoints() -> None:
    only_grpc = exposure(ExposureWorld(BACKEND, (MADE[0], MADE[2])))

    assert only_grpc.grpc_address == "traffic.default.svc:8001"
    assert only_grpc.http_address == OF_ENGINE.http_address


def test_ports_that_are_not_requested_any_more_are_removed() -> None:
    found = exposure(ExposureWorld(SessionBackend(SELECTOR, 8000), MADE), of=PLAIN)

    changed, *removed = found.actions
    assert isinstance(changed, ApplyObject)
    assert [port["name"] for port in changed.manifest["spec"]["ports"]] == ["http"]
    assert {type(action) for action in removed} == {DeleteObject}
    assert len(removed) == 2


def test_a_session_that_moves_to_engine_ray_loses_its_service() -> None:
    found = exposure(
        ExposureWorld(objects=MADE), of=session("traffic").model("m").with_spec(engine={"type": "Ray"}).build()
    )

    assert reason(found) == (False, "NoService")
    assert [type(action) for action in found.actions] == [DeleteObject] * 3


@pytest.mark.parametrize("name", ["partita-serve-svc", "partita-abcde-head-svc", "partita-svc"])
def test_names_that_kuberay_needs_are_left_to_it(name: str) -> None:
    found = exposure(ExposureWorld(BACKEND), of=session(name).model("detector").build())

    assert reason(found) == (False, "NameTaken")
    assert found.actions == ()


def test_addresses_that_no_pod_has_are_named() -> None:
    found = exposure(ExposureWorld(replace(BACKEND, unknown=("1.2.3.4:5",)), MADE))

    assert found.finding is not None
    assert "1.2.3.4:5, which no pod" in found.finding.message


@pytest.mark.parametrize(
    ("has_dns", "want"),
    [
        pytest.param(None, "ServiceReady", id="not known"),
        pytest.param(True, "ServiceReady", id="names resolve"),
        pytest.param(False, "NoClusterDNS", id="no names"),
    ],
)
def test_a_cluster_without_dns_gets_the_address_of_the_service(has_dns: bool | None, want: str) -> None:
    addressed = {**MADE[0], "spec": {**MADE[0]["spec"], "clusterIP": "10.0.0.9"}}
    found = exposure(ExposureWorld(BACKEND, (addressed, *MADE[1:]), public=PublicWorld(has_dns=has_dns)))

    assert found.finding is not None
    assert str(found.finding.reason) == want
    assert (f"replace {URL.split('/')[2]} by the Service's address 10.0.0.9" in found.finding.message) is (
        has_dns is False
    )
    assert found.url == URL


def test_without_an_answer_of_the_engine_the_status_keeps_its_addresses() -> None:
    before = PLAIN.model_copy(update={"status": InferenceSessionStatus(url="http://before")})

    assert exposure(None, before, serving=None).url == "http://before"


def test_addresses_stay_until_the_objects_are_read_after_a_start_of_the_operator() -> None:
    status = InferenceSessionStatus(url=URL, grpc_address="traffic.default.svc:8001", http_address=None)
    found = exposure(None, FAST.model_copy(update={"status": status}))

    assert (found.url, found.grpc_address, found.http_address) == (URL, "traffic.default.svc:8001", None)
    assert found.finding is None
    assert found.actions == ()


@pytest.mark.parametrize(
    ("change", "writes"),
    [
        pytest.param(lambda spec: spec, 0, id="as applied"),
        pytest.param(lambda spec: {**spec, "clusterIP": "10.0.0.9"}, 0, id="defaults of the server"),
        pytest.param(
            lambda spec: {**spec, "ports": [*spec["ports"], {"name": "extra", "port": 1}]}, 0, id="a port of others"
        ),
        pytest.param(lambda spec: {**spec, "ports": spec["ports"][:1]}, 1, id="a port is missing"),
        pytest.param(lambda spec: {**spec, "selector": {**SELECTOR, "app": "x"}}, 1, id="a narrower selector"),
    ],
)
def test_drift_is_written_once(change: Any, writes: int) -> None:
    (made,) = stored(service(FAST, BACKEND))

    assert len(object_changes([service(FAST, BACKEND)], [{**made, "spec": change(made["spec"])}])) == writes


def test_a_field_that_is_not_desired_any_more_is_noticed() -> None:
    made = {**service(FAST, BACKEND), "metadata": {**service(FAST, BACKEND)["metadata"], "annotations": {"old": "1"}}}

    assert len(object_changes([service(FAST, BACKEND)], stored(made))) == 1
