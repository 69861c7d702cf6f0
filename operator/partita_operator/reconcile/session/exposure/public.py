"""The public address of a session: what to write for spec.expose, and what is missing."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from partita_api.conditions import ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.session.expose import GatewayExposure, IngressExposure
from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.object_changes import Document, ObjectName, object_name
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.client_access import authentication_required, may_be_public
from partita_operator.reconcile.session.exposure.condition import name_taken, not_exposed, unknown_exposure
from partita_operator.reconcile.session.exposure.gateway import (
    GROUP,
    GRPC_ROUTE,
    HTTP_ROUTE,
    gateway_addresses,
    grpc_route,
    http_route,
    listener_for,
)
from partita_operator.reconcile.session.exposure.ingress import (
    INGRESS,
    ingress,
    ingress_addresses,
    ingress_obstacle,
    ingress_url,
)
from partita_operator.reconcile.session.exposure.policy import forbidden, gateway_key, taken_hosts
from partita_operator.reconcile.session.exposure.route import route_obstacle
from partita_operator.reconcile.world import ExposureWorld, KindState, SessionWorld
from partita_operator.settings.exposure import ExposureSettings
from partita_runtime.serving.deploy.names import route_prefix

PUBLIC_KINDS: Final = frozenset({INGRESS, HTTP_ROUTE, GRPC_ROUTE})


@dataclass(frozen=True)
class PublicAddress:
    """What spec.expose leads to."""

    manifests: tuple[dict[str, Any], ...] = ()
    """The objects that the session should have."""
    known: bool = True
    """Whether the session's present objects are known. If not, they and the condition stay as they are."""
    url: str | None = None
    """The public URL; None while clients may not reach the session by it."""
    grpc_address: str | None = None
    """host:port for gRPC clients; None while they may not reach the session by it."""
    finding: Finding | None = None
    """The condition Exposed; None: it is only about the Service."""


def needed_public_objects(session: InferenceSession, settings: ExposureSettings) -> tuple[ObjectName, ...]:
    """Kinds and names of the objects for spec.expose; none if the platform forbids it."""
    expose = session.spec.expose
    if expose is None or forbidden(session, settings):
        return ()
    kinds = [INGRESS] if expose.gateway is None else [route["kind"] for route in _routes(session, expose.gateway)]
    return tuple((kind, session.metadata.name) for kind in kinds)


def public_address(world: SessionWorld, exposure: ExposureWorld) -> PublicAddress:
    """The public address of a session that has a Service."""
    session, settings = world.session, world.settings.exposure
    expose = session.spec.expose
    if expose is None:
        return PublicAddress()
    if problem := forbidden(session, settings):
        return PublicAddress(finding=not_exposed(Reason.EXPOSE_NOT_ALLOWED, problem))
    if not may_be_public(world):
        return PublicAddress(
            finding=not_exposed(Reason.AUTHENTICATION_REQUIRED, authentication_required(world.settings.clients))
        )
    if taken := taken_hosts(world):
        message = f"Another session has the host {listed(sorted(taken))}. Choose another host."
        return PublicAddress(finding=not_exposed(Reason.HOST_TAKEN, message))
    if expose.ingress is not None:
        return _by_ingress(session, expose.ingress, settings, exposure)
    assert expose.gateway is not None
    return _by_gateway(session, expose.gateway, exposure)


def _by_ingress(
    session: InferenceSession, expose: IngressExposure, settings: ExposureSettings, exposure: ExposureWorld
) -> PublicAddress:
    if unread := _unread([INGRESS], exposure):
        return unread
    name = (INGRESS, session.metadata.name)
    if name in exposure.taken:
        return PublicAddress(finding=name_taken(*name))
    manifests, present = (ingress(session, expose, settings),), _present(name, exposure)
    obstacle = ingress_obstacle(session, expose, settings, exposure.public, present)
    if obstacle is not None:
        return PublicAddress(manifests, finding=obstacle)
    assert present is not None
    url = ingress_url(session, expose)
    message = f"Clients reach the session at {url}. The controller's address is {listed(ingress_addresses(present))}."
    return PublicAddress(manifests, url=url, finding=_public(message))


def _by_gateway(session: InferenceSession, expose: GatewayExposure, exposure: ExposureWorld) -> PublicAddress:
    routes, key, public = _routes(session, expose), gateway_key(session, expose), exposure.public
    if undefined := [route["kind"] for route in routes if not _state(route["kind"], exposure).defined]:
        return PublicAddress(finding=not_exposed(Reason.GATEWAY_API_MISSING, _missing_kinds_message(undefined)))
    if unread := _unread([route["kind"] for route in routes], exposure):
        return unread
    if not public.gateways.listed:
        return _unlisted(public.gateways)
    free = tuple(route for route in routes if object_name(route) not in exposure.taken)
    if public.gateway is None:
        message = f"Gateway {key} does not exist. Create it, or correct gateway.name and gateway.namespace."
        return PublicAddress(free, finding=not_exposed(Reason.GATEWAY_MISSING, message))
    obstacles = {route["kind"]: _route_problem(public.gateway, route, exposure) for route in routes}
    listeners = {route["kind"]: listener_for(public.gateway, route) for route in routes}
    url = grpc_address = None
    if obstacles[HTTP_ROUTE] is None and (listener := listeners[HTTP_ROUTE]) is not None:
        url = f"{listener.url(expose.hostname)}{route_prefix(session.key)}"
    if GRPC_ROUTE in obstacles and obstacles[GRPC_ROUTE] is None and (listener := listeners[GRPC_ROUTE]) is not None:
        grpc_address = f"{expose.grpc_hostname}:{listener.port}"
    finding = next((found for found in obstacles.values() if found is not None), None)
    if finding is None:
        finding = _public(_gateway_message(session, url, grpc_address, key, gateway_addresses(public.gateway)))
    return PublicAddress(free, url=url, grpc_address=grpc_address, finding=finding)


def _routes(session: InferenceSession, expose: GatewayExposure) -> tuple[dict[str, Any], ...]:
    grpc = (grpc_route(session, expose, expose.grpc_hostname),) if expose.grpc_hostname is not None else ()
    return (http_route(session, expose), *grpc)


def _route_problem(gateway: Document, route: Document, exposure: ExposureWorld) -> Finding | None:
    name = object_name(route)
    return name_taken(*name) if name in exposure.taken else route_obstacle(gateway, route, _present(name, exposure))


def _gateway_message(
    session: InferenceSession, url: str | None, grpc_address: str | None, key: str, addresses: Collection[str]
) -> str:
    message = f"Clients reach the session at {url} through Gateway {key}."
    if addresses:
        message += f" Its address is {listed(list(addresses))}."
    if grpc_address is not None:
        message += f" gRPC clients reach it at {grpc_address}."
    elif session.spec.frontend.grpc_port is not None:
        message += " gRPC clients reach it only in the cluster; set gateway.grpcHostname to change that."
    return message


def _missing_kinds_message(kinds: Collection[str]) -> str:
    return (
        f"The cluster lacks {listed(list(kinds))} of {GROUP}/v1. Install the CustomResourceDefinitions of the Gateway "
        "API, 1.1 or newer."
    )


def _state(kind: str, exposure: ExposureWorld) -> KindState:
    return exposure.kinds.get(kind, KindState(listed=False))


def _unread(kinds: Collection[str], exposure: ExposureWorld) -> PublicAddress | None:
    """The answer while objects of some of the kinds are not known; None if all are."""
    states = [_state(kind, exposure) for kind in kinds]
    return next((_unlisted(state) for state in states if not state.listed), None)


def _unlisted(state: KindState) -> PublicAddress:
    if not state.problem:
        return PublicAddress(known=False)
    message = f"{state.problem} Upgrade the Helm release, which adds the rights."
    return PublicAddress(known=False, finding=unknown_exposure(Reason.EXPOSURE_FAILED, message))


def _present(name: ObjectName, exposure: ExposureWorld) -> Document | None:
    return next((found for found in exposure.objects if object_name(found) == name), None)


def _public(message: str) -> Finding:
    return Finding(ConditionType.EXPOSED, True, Reason.PUBLIC, message)
