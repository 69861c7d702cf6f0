"""What the platform lets sessions expose, and which of several sessions has a host."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders import session

from partita_api.inferencesession import EngineType, InferenceSession
from partita_api.session.expose import HostClaim
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.session.exposure.policy import claims, forbidden, matches, taken_hosts
from partita_operator.reconcile.world import SessionWorld
from partita_operator.settings.exposure import ExposureSettings
from partita_operator.settings.model import OperatorSettings

ALLOWED = ExposureSettings(
    allowed_hosts=("*.{namespace}.example.com", "shared.example.com"),
    allowed_ingress_classes=("nginx", "internal"),
    allowed_annotations=("cert-manager.io/cluster-issuer",),
    allowed_gateways=("gateways/public",),
)
SETTINGS = OperatorSettings(exposure=ALLOWED, default_engine=EngineType.RAY)
HOST = "shared.example.com"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def exposed(
    name: str = "traffic",
    host: str = HOST,
    *,
    namespace: str = "team",
    created: str = "2025-01-01T00:00:00Z",
    since: str | None = None,
    engine: str = "KubeRay",
    **ingress: Any,
) -> InferenceSession:
    """A session with an Ingress; `since` is when it got the host."""
    spec = {"engine": {"type": engine}, "expose": {"ingress": {"host": host, **ingress}}}
    built = session(name).model("m").with_spec(**spec).build()
    metadata = built.metadata.model_copy(update={"namespace": namespace, "creation_timestamp": created})
    claimed = (HostClaim(host=host, since=since),) if since else ()
    return built.model_copy(
        update={"metadata": metadata, "status": built.status.model_copy(update={"claimed_hosts": claimed})}
    )


def by_gateway(*, namespace: str = "team", created: str = "2025-01-01T00:00:00Z", grpc: str) -> InferenceSession:
    """A session with a host for gRPC."""
    gateway = {
        "name": "public",
        "namespace": "gateways",
        "hostname": f"a.{namespace}.example.com",
        "grpcHostname": grpc,
    }
    spec = {"engine": {"type": "KubeRay"}, "expose": {"gateway": gateway}, "frontend": {"grpcPort": 0}}
    built = session(f"grpc-{created[:4]}").model("m").with_spec(**spec).build()
    metadata = built.metadata.model_copy(update={"namespace": namespace, "creation_timestamp": created})
    return built.model_copy(update={"metadata": metadata})


def world(own: InferenceSession, *others: InferenceSession) -> SessionWorld:
    cluster = Cluster(sessions={found.key: found for found in (own, *others)})
    return SessionWorld(session=own, cluster=cluster, settings=SETTINGS)


@pytest.mark.parametrize(
    ("pattern", "host", "want"),
    [
        pytest.param("serve.example.com", "serve.example.com", True, id="the host itself"),
        pytest.param("serve.example.com", "serve.example.org", False, id="another host"),
        pytest.param("*.example.com", "a.example.com", True, id="one label"),
        pytest.param("*.example.com", "a.b.example.com", False, id="two labels for one"),
        pytest.param("*.example.com", "example.com", False, id="no label for one"),
        pytest.param("{namespace}.example.com", "team.example.com", True, id="the own namespace"),
        pytest.param("{namespace}.example.com", "other.example.com", False, id="another namespace"),
        pytest.param("*.{namespace}.example.com", "a.team.example.com", True, id="a label before the namespace"),
    ],
)
def test_a_pattern_matches_label_by_label(pattern: str, host: str, want: bool) -> None:
    assert matches(pattern, host, "team") is want


@pytest.mark.parametrize("pattern", ["a*.example.com", "*-{namespace}.example.com", "Serve.example.com", "a..b", ""])
def test_patterns_that_could_match_hosts_of_other_namespaces_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        ExposureSettings(allowed_hosts=(pattern,))


@pytest.mark.parametrize(
    ("settings", "own", "want"),
    [
        pytest.param(ALLOWED, exposed(), [], id="allowed"),
        pytest.param(ALLOWED, exposed(className="internal"), [], id="another allowed class"),
        pytest.param(ALLOWED, exposed(host="a.team.example.com"), [], id="a host of the namespace"),
        pytest.param(
            ALLOWED,
            exposed(host="a.other.example.com"),
            ["host a.other.example.com", "exposure.allowedHosts of the chart has only *.team.example.com, shared"],
            id="a host of another namespace",
        ),
        pytest.param(
            ALLOWED, exposed(className="public"), ["IngressClass public", "allowedIngressClasses"], id="another class"
        ),
        pytest.param(
            ALLOWED,
            exposed(annotations={"nginx.ingress.kubernetes.io/server-snippet": "x"}),
            ["annotation nginx.ingress.kubernetes.io/server-snippet", "exposure.allowedAnnotations"],
            id="an annotation",
        ),
        pytest.param(
            ExposureSettings(),
            exposed(),
            ["exposure.allowedHosts of the chart is empty", "exposure.allowedIngressClasses of the chart is empty"],
            id="nothing is allowed by default",
        ),
    ],
)
def test_what_is_not_allowed_is_named_with_its_setting(
    settings: ExposureSettings, own: InferenceSession, want: list[str]
) -> None:
    message = forbidden(own, settings)

    assert bool(message) == bool(want)
    assert all(part in message for part in want)


OLDER = "2024-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("own", "other", "taken"),
    [
        pytest.param(exposed(), exposed(namespace="other", host="b.other.example.com"), False, id="different hosts"),
        pytest.param(exposed(), exposed("second", created=OLDER), False, id="one namespace shares a host by paths"),
        pytest.param(exposed(), exposed(namespace="other", created=OLDER), True, id="the older session gets it"),
        pytest.param(exposed(created=OLDER), exposed(namespace="other"), False, id="the younger one does not"),
        pytest.param(
            exposed(created=OLDER),
            exposed(namespace="other", since="2025-06-01T00:00:00Z"),
            True,
            id="an old session cannot take a host that another one has",
        ),
        pytest.param(
            exposed(since="2025-07-01T00:00:00Z"),
            exposed(namespace="other", since="2025-06-01T00:00:00Z"),
            True,
            id="the one that had it first",
        ),
        pytest.param(
            exposed(),
            exposed(namespace="other", created=OLDER, className="public"),
            False,
            id="a request that is refused takes no host",
        ),
        pytest.param(
            exposed(), exposed(namespace="other", created=OLDER, engine="Ray"), False, id="engine Ray takes no host"
        ),
        pytest.param(by_gateway(grpc=HOST), by_gateway(created=OLDER, grpc=HOST), True, id="gRPC has no paths"),
        pytest.param(exposed(), by_gateway(created=OLDER, grpc=HOST), True, id="a host is for HTTP or for gRPC"),
    ],
)
def test_one_session_has_a_host(own: InferenceSession, other: InferenceSession, taken: bool) -> None:
    found = world(own, other)

    assert taken_hosts(found) == (frozenset({HOST}) if taken else frozenset())
    assert (HOST in [claim.host for claim in claims(found, NOW)]) is not taken


def test_two_sessions_of_the_same_second_do_not_both_get_a_host() -> None:
    one, other = exposed(), exposed(namespace="other")

    assert len(taken_hosts(world(one, other)) | taken_hosts(world(other, one))) == 1
    assert bool(taken_hosts(world(one, other))) != bool(taken_hosts(world(other, one)))


@pytest.mark.parametrize(
    ("own", "since"),
    [
        pytest.param(exposed(), ["2026-01-01T00:00:00Z"], id="from now"),
        pytest.param(exposed(since=OLDER), [OLDER], id="kept"),
        pytest.param(exposed(since=OLDER, className="public"), [], id="given up when it is not allowed"),
        pytest.param(session("traffic").model("m").build(), [], id="nothing is exposed"),
    ],
)
def test_a_claim_lasts_as_long_as_its_request(own: InferenceSession, since: list[str]) -> None:
    assert [claim.since for claim in claims(world(own), NOW)] == since
