"""A session's Ingress, its public URL, and what the condition Exposed says about them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders import session

from partita_api.inferencesession import EngineType, InferenceSession, InferenceSessionStatus
from partita_api.session.clients import Clients
from partita_operator.ports import ServingStatus, SessionBackend
from partita_operator.reconcile.actions import ApplyObject, DeleteObject
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.object_changes import marked
from partita_operator.reconcile.session.exposure.decision import Exposure, expose, needed_objects
from partita_operator.reconcile.session.exposure.ingress import ingress
from partita_operator.reconcile.session.exposure.policy import claims
from partita_operator.reconcile.session.exposure.service import service
from partita_operator.reconcile.world import ClientsWorld, ExposureWorld, KindState, PublicWorld, SessionWorld
from partita_operator.settings.clients import ClientSettings, Required
from partita_operator.settings.exposure import ExposureSettings
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings

ALLOWED = ExposureSettings(
    allowed_hosts=("serve.example.com",), allowed_ingress_classes=("nginx",), allowed_annotations=("a/b",)
)
SETTINGS = OperatorSettings(kuberay=KubeRaySettings(image="x"), default_engine=EngineType.KUBERAY, exposure=ALLOWED)
CLUSTER_URL = "http://traffic.default.svc/default/traffic"
URL = "https://serve.example.com/default/traffic"
BACKEND = SessionBackend({"ray.io/cluster": "one"}, 8000)


def exposed(**ingress: Any) -> InferenceSession:
    fields = {"host": "serve.example.com", "tlsSecretName": "serve-tls", **ingress}
    return session("traffic").model("detector").with_spec(expose={"ingress": fields}).build()


def stored(manifest: dict[str, Any], **status: Any) -> dict[str, Any]:
    made = marked(manifest)
    return {**made, "metadata": {**made["metadata"], "uid": f"uid-{made['kind']}"}, "status": status}


OWN = exposed()
PLAIN = session("traffic").model("detector").build()
SERVICE = stored(service(OWN, BACKEND))
MADE = stored(ingress(OWN, OWN.spec.expose.ingress, ALLOWED), loadBalancer={"ingress": [{"ip": "192.0.2.1"}]})
WITHOUT_ADDRESS = {**MADE, "status": {}}
READY = ExposureWorld(
    BACKEND,
    (SERVICE, MADE),
    kinds={"Ingress": KindState()},
    public=PublicWorld(ingress_classes=frozenset({"nginx"}), has_tls_secret=True),
)


def exposure(world: ExposureWorld | None, of: InferenceSession = OWN, **settings: Any) -> Exposure:
    serving = ServingStatus(url="http://engine/default/traffic")
    chosen = SETTINGS.model_copy(update=settings)
    return expose(SessionWorld(session=of, cluster=Cluster(), settings=chosen, serving=serving, exposure=world))


def test_the_path_keeps_the_prefix_by_which_ray_serve_finds_the_session() -> None:
    spec = ingress(OWN, OWN.spec.expose.ingress, ALLOWED)["spec"]

    (rule,) = spec["rules"]
    assert rule["host"] == "serve.example.com"
    assert rule["http"]["paths"] == [
        {
            "path": "/default/traffic/v2",
            "pathType": "Prefix",
            "backend": {"service": {"name": "traffic", "port": {"name": "http"}}},
        }
    ]
    assert spec["tls"] == [{"hosts": ["serve.example.com"], "secretName": "serve-tls"}]
    assert spec["ingressClassName"] == "nginx"


@pytest.mark.parametrize(
    ("of", "url"),
    [
        pytest.param(OWN, URL, id="TLS"),
        pytest.param(exposed(tlsSecretName=None), URL.replace("https", "http"), id="plain HTTP"),
    ],
)
def test_the_url_is_public_and_the_one_in_the_cluster_stays_visible(of: InferenceSession, url: str) -> None:
    made = stored(ingress(of, of.spec.expose.ingress, ALLOWED), **MADE["status"])
    found = exposure(replace(READY, objects=(SERVICE, made)), of)

    assert (found.url, found.cluster_url) == (url, CLUSTER_URL)
    assert found.finding is not None
    assert (found.finding.status, found.finding.reason) == (True, "Public")
    assert "192.0.2.1" in found.finding.message
    assert found.actions == ()


@pytest.mark.parametrize(
    ("world", "want", "message", "writes"),
    [
        pytest.param(replace(READY, objects=(SERVICE,)), "WaitingForController", "traffic", 1, id="first write"),
        pytest.param(
            replace(READY, objects=(SERVICE, WITHOUT_ADDRESS)), "WaitingForController", "nginx", 0, id="no address"
        ),
        pytest.param(
            replace(READY, public=PublicWorld(frozenset({"other"}))),
            "IngressClassMissing",
            "IngressClass nginx does not exist",
            0,
            id="no class",
        ),
        pytest.param(
            replace(READY, public=PublicWorld(frozenset({"nginx"}), has_tls_secret=False)),
            "TLSSecretMissing",
            "Secret serve-tls",
            0,
            id="no certificate",
        ),
        pytest.param(
            replace(READY, objects=(SERVICE,), taken=frozenset({("Ingress", "traffic")})),
            "NameTaken",
            "Ingress traffic exists",
            0,
            id="name taken",
        ),
        pytest.param(
            replace(READY, objects=(SERVICE,), kinds={"Ingress": KindState(listed=False, problem="No right.")}),
            "ExposureFailed",
            "No right. Upgrade the Helm release",
            0,
            id="no right",
        ),
        pytest.param(replace(READY, problem="Refused."), "ExposureFailed", "Refused.", 0, id="a write failed"),
    ],
)
def test_what_is_missing_is_named_and_the_service_stays(
    world: ExposureWorld, want: str, message: str, writes: int
) -> None:
    found = exposure(world)

    assert found.finding is not None
    assert found.finding.status is not True
    assert str(found.finding.reason) == want
    assert message in found.finding.message
    assert len(found.actions) == writes
    if want != "ExposureFailed":
        assert (found.url, found.cluster_url) == (CLUSTER_URL, None)


def test_what_is_not_allowed_is_deleted() -> None:
    found = exposure(READY, exposure=ExposureSettings(allowed_ingress_classes=("nginx",)))

    assert found.finding is not None
    assert str(found.finding.reason) == "ExposeNotAllowed"
    assert "exposure.allowedHosts" in found.finding.message
    assert found.actions == (DeleteObject("networking.k8s.io/v1", "Ingress", "traffic", "uid-Ingress"),)
    assert found.url == CLUSTER_URL


KEY_SET = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'
TOKENS = {"jwt": {"issuer": "a", "audiences": ["b"], "jwks": KEY_SET}}
KEYS = {"apiKeys": {"secretName": "partita-clients"}}


@pytest.mark.parametrize(
    ("required", "clients", "keys", "want_public"),
    [
        pytest.param(Required.NEVER, None, None, True, id="not required"),
        pytest.param(Required.EXPOSED, None, None, False, id="required, and everybody is answered"),
        pytest.param(Required.ALWAYS, None, None, False, id="always required, and everybody is answered"),
        pytest.param(Required.EXPOSED, TOKENS, None, True, id="tokens"),
        pytest.param(Required.EXPOSED, KEYS, {"shop": b"x" * 16}, True, id="API keys"),
        pytest.param(Required.EXPOSED, KEYS, {}, True, id="no keys, so that nobody is answered"),
        pytest.param(Required.EXPOSED, KEYS, None, False, id="keys that cannot be read"),
    ],
)
def test_a_public_address_where_the_platform_requires_authentication(
    required: Required, clients: Any, keys: dict[str, bytes] | None, want_public: bool
) -> None:
    given = Clients.model_validate(clients) if clients is not None else None
    own = OWN.model_copy(update={"spec": OWN.spec.model_copy(update={"clients": given})})
    settings = SETTINGS.model_copy(update={"clients": ClientSettings(required=required)})
    found = ClientsWorld(keys, problem="" if keys is not None else "Partita may not read the Secret.")
    serving = ServingStatus(url="http://engine/default/traffic")
    world = SessionWorld(own, Cluster(), settings, serving=serving, exposure=READY, clients=found)
    made = expose(world)
    if want_public:
        assert (made.url, made.actions) == (URL, ())
        return
    assert made.finding is not None
    assert (made.finding.status, made.finding.reason, made.url) == (False, "AuthenticationRequired", CLUSTER_URL)
    assert [(action.kind, action.name) for action in made.actions if isinstance(action, DeleteObject)] == [
        ("Ingress", "traffic")
    ]
    assert claims(world, datetime(2026, 1, 1, tzinfo=UTC)) == () or clients is not None


@pytest.mark.parametrize(
    "backend", [pytest.param(BACKEND, id="serving"), pytest.param(None, id="the Ray cluster is away")]
)
def test_an_ingress_that_is_not_requested_any_more_is_deleted(backend: SessionBackend | None) -> None:
    found = exposure(replace(READY, backend=backend), PLAIN)

    assert found.actions == (DeleteObject("networking.k8s.io/v1", "Ingress", "traffic", "uid-Ingress"),)
    assert found.finding is not None
    assert str(found.finding.reason) == "ServiceReady"


def test_the_ingress_stays_while_the_ray_cluster_is_away() -> None:
    found = exposure(replace(READY, backend=None))

    assert found.actions == ()
    assert found.url == URL


def test_addresses_stay_until_the_ingresses_are_read_after_a_start_of_the_operator() -> None:
    status = InferenceSessionStatus(url=URL, cluster_url=CLUSTER_URL)
    of = OWN.model_copy(update={"status": status})
    found = exposure(replace(READY, objects=(SERVICE,), kinds={"Ingress": KindState(listed=False)}), of)

    assert (found.url, found.cluster_url) == (URL, CLUSTER_URL)
    assert found.finding is None
    assert found.actions == ()


def test_an_ingress_never_leads_to_a_service_of_somebody_else() -> None:
    found = exposure(replace(READY, objects=(MADE,), taken=frozenset({("Service", "traffic")})))

    assert found.actions == (DeleteObject("networking.k8s.io/v1", "Ingress", "traffic", "uid-Ingress"),)


def test_engine_ray_is_refused() -> None:
    found = exposure(READY, OWN, default_engine=EngineType.RAY)

    assert found.finding is not None
    assert str(found.finding.reason) == "ExposeUnsupported"
    assert "needs engine KubeRay" in found.finding.message
    assert {type(action) for action in found.actions} == {DeleteObject}


def test_a_changed_host_is_one_write() -> None:
    found = exposure(READY, exposed(annotations={"a/b": "c"}))

    (change,) = found.actions
    assert isinstance(change, ApplyObject)
    assert change.manifest["metadata"]["annotations"]["a/b"] == "c"


@pytest.mark.parametrize(
    ("of", "settings", "names"),
    [
        pytest.param(PLAIN, ALLOWED, [("Service", "traffic")], id="not exposed"),
        pytest.param(OWN, ALLOWED, [("Service", "traffic"), ("Ingress", "traffic")], id="exposed"),
        pytest.param(OWN, ExposureSettings(), [("Service", "traffic")], id="not allowed"),
    ],
)
def test_only_kinds_that_are_watched_are_looked_up(
    of: InferenceSession, settings: ExposureSettings, names: list[tuple[str, str]]
) -> None:
    assert list(needed_objects(of, settings)) == names
