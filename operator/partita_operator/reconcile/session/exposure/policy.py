"""What the platform lets a session expose, and which session has a host."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from partita_api.inferencesession import EngineType, InferenceSession
from partita_api.session.expose import GatewayExposure, HostClaim, IngressExposure
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.findings import listed
from partita_operator.reconcile.session.client_access import lacks_clients
from partita_operator.reconcile.world import SessionWorld
from partita_operator.settings.exposure import NAMESPACE_PLACEHOLDER, ExposureSettings
from partita_operator.settings.model import OperatorSettings


@dataclass(frozen=True)
class HostUse:
    """One host of a session's public address."""

    host: str
    by_path: bool = True
    """Whether sessions of one namespace can share it, because each has a path of its own."""


def forbidden(session: InferenceSession, settings: ExposureSettings) -> str:
    """What of spec.expose the platform does not allow, and the setting to change; empty if it allows everything."""
    expose = session.spec.expose
    if expose is None:
        return ""
    problems = list(_hosts_forbidden(session, settings))
    if expose.ingress is not None:
        problems += _ingress_forbidden(expose.ingress, settings)
    if expose.gateway is not None:
        problems += _gateway_forbidden(gateway_key(session, expose.gateway), settings)
    return " ".join(problems)


def ingress_class(ingress: IngressExposure, settings: ExposureSettings) -> str:
    """The IngressClass of an Ingress that the platform allows."""
    return ingress.class_name or settings.allowed_ingress_classes[0]


def gateway_key(session: InferenceSession, gateway: GatewayExposure) -> str:
    """namespace/name of the Gateway."""
    return f"{gateway.namespace or session.metadata.namespace or 'default'}/{gateway.name}"


def hosts(session: InferenceSession) -> tuple[HostUse, ...]:
    """The hosts that spec.expose requests."""
    expose = session.spec.expose
    if expose is None:
        return ()
    if expose.ingress is not None:
        return (HostUse(expose.ingress.host),)
    assert expose.gateway is not None
    grpc = expose.gateway.grpc_hostname
    return (HostUse(expose.gateway.hostname), *((HostUse(grpc, by_path=False),) if grpc is not None else ()))


def taken_hosts(world: SessionWorld) -> frozenset[str]:
    """The hosts of spec.expose that another session has.

    The session that got a host first keeps it. Of two that request it for the first time, the older session gets it.
    Sessions of one namespace share a host, unless that needs more than a path of their own.
    """
    return frozenset(use.host for use in hosts(world.session) if _is_taken(use, world))


def claims(world: SessionWorld, now: datetime) -> tuple[HostClaim, ...]:
    """The hosts that the session has from now on."""
    before = {claim.host: claim for claim in world.session.status.claimed_hosts}
    if not _may_have_hosts(world.session, world.settings):
        return ()
    taken = taken_hosts(world)
    return tuple(
        before.get(use.host) or HostClaim(host=use.host, since=timestamp(now))
        for use in hosts(world.session)
        if use.host not in taken
    )


def matches(pattern: str, host: str, namespace: str) -> bool:
    """Whether a host is one of the pattern's: `*` stands for one label, `{namespace}` for the namespace.

    >>> matches("*.{namespace}.example.com", "a.team.example.com", "team")
    True
    >>> matches("*.{namespace}.example.com", "a.other.example.com", "team")
    False
    """
    expected, labels = pattern.replace(NAMESPACE_PLACEHOLDER, namespace).split("."), host.split(".")
    return len(expected) == len(labels) and all(
        want in ("*", label) for want, label in zip(expected, labels, strict=True)
    )


def _hosts_forbidden(session: InferenceSession, settings: ExposureSettings) -> Iterable[str]:
    namespace = session.namespace
    allowed = [pattern.replace(NAMESPACE_PLACEHOLDER, namespace) for pattern in settings.allowed_hosts]
    for use in hosts(session):
        if not any(matches(pattern, use.host, namespace) for pattern in settings.allowed_hosts):
            yield _not_allowed(f"host {use.host}", "allowedHosts", allowed)


def _ingress_forbidden(ingress: IngressExposure, settings: ExposureSettings) -> Iterable[str]:
    classes = settings.allowed_ingress_classes
    if not classes:
        yield _not_allowed("Ingresses", "allowedIngressClasses", classes)
    elif ingress.class_name is not None and ingress.class_name not in classes:
        yield _not_allowed(f"IngressClass {ingress.class_name}", "allowedIngressClasses", classes)
    if keys := sorted(ingress.annotations.keys() - set(settings.allowed_annotations)):
        yield _not_allowed(f"annotation {listed(keys)}", "allowedAnnotations", settings.allowed_annotations)


def _gateway_forbidden(gateway: str, settings: ExposureSettings) -> Iterable[str]:
    if gateway not in settings.allowed_gateways:
        yield _not_allowed(f"Gateway {gateway}", "allowedGateways", settings.allowed_gateways)


def _not_allowed(what: str, key: str, allowed: Iterable[str]) -> str:
    instead = listed(list(allowed))
    return (
        f"The platform does not allow {what}: exposure.{key} of the chart "
        f"{f'has only {instead}' if instead else 'is empty'}."
    )


def _is_taken(use: HostUse, world: SessionWorld) -> bool:
    own = world.session
    others = (other for other in world.cluster.sessions.values() if other.key != own.key)
    return any(
        _conflicts(use, theirs, own, other)
        and _may_have_hosts(other, world.settings)
        and _precedence(other, use.host) < _precedence(own, use.host)
        for other in others
        for theirs in hosts(other)
    )


def _conflicts(use: HostUse, theirs: HostUse, own: InferenceSession, other: InferenceSession) -> bool:
    shared = own.metadata.namespace == other.metadata.namespace and use.by_path and theirs.by_path
    return use.host == theirs.host and not shared


def _may_have_hosts(session: InferenceSession, settings: OperatorSettings) -> bool:
    """Whether the session's request counts: one that is refused anyway takes no host from others."""
    engine = session.spec.engine.type_or(settings.default_engine)
    allowed = not forbidden(session, settings.exposure) and not lacks_clients(session, settings.clients)
    return engine is EngineType.KUBERAY and allowed


def _precedence(session: InferenceSession, host: str) -> tuple[bool, str, str, str]:
    """Smaller is earlier."""
    since = next((claim.since for claim in session.status.claimed_hosts if claim.host == host), None)
    return since is None, since or "", session.metadata.creation_timestamp, session.key
