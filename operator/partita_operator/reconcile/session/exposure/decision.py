"""Which of a session's objects to write, its addresses, and the condition Exposed."""

from dataclasses import dataclass, replace
from typing import Final

from partita_api.conditions import ConditionType
from partita_api.inferencesession import EngineType, InferenceSession
from partita_operator.ports import GRPC, HTTP_DIRECT
from partita_operator.reconcile.actions import Action
from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.object_changes import ObjectName, object_changes, object_name
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.exposure.service import (
    ENDPOINT_SLICE,
    PORTS,
    direct_ports,
    endpoint_slices,
    has_endpoints,
    host_of,
    is_reserved,
    service,
    service_name,
)
from partita_operator.reconcile.world import ExposureWorld, SessionWorld
from partita_runtime.serving.deploy.names import route_prefix

_NO_SERVICE: Final = (
    "Engine Ray has no Service: the processes of its Ray cluster need not be pods of this Kubernetes cluster. Clients "
    "use status.url."
)


@dataclass(frozen=True)
class Exposure:
    """How clients reach the session."""

    url: str | None = None
    grpc_address: str | None = None
    http_address: str | None = None
    finding: Finding | None = None
    """The condition Exposed; None: it stays as it is."""
    actions: tuple[Action, ...] = ()


def expose(world: SessionWorld) -> Exposure:
    """The session's addresses, and what to write for them. Without a Service they are those of the engine."""
    of_engine, exposure = _addresses_of_engine(world), world.exposure
    if world.session.spec.engine.type_or(world.settings.default_engine) is EngineType.RAY:
        left = object_changes((), exposure.objects) if exposure is not None else ()
        return replace(of_engine, finding=_not(Reason.NO_SERVICE, _NO_SERVICE), actions=left)
    if exposure is None:
        return _addresses_before(world, of_engine)
    if is_reserved(world.session) or service_name(world.session) in exposure.taken:
        return replace(of_engine, finding=_not(Reason.NAME_TAKEN, _taken_message(world)))
    there = service_name(world.session) in map(object_name, exposure.objects)
    addresses = _addresses_of_service(world, exposure, of_engine) if there else of_engine
    actions = _changes(world, exposure)
    if exposure.problem:
        finding = _not(Reason.EXPOSURE_FAILED, f"{exposure.problem} Partita tries again.")
    elif there:
        finding = Finding(ConditionType.EXPOSED, True, Reason.SERVICE_READY, _ready_message(world, exposure))
    else:
        finding = _not(Reason.WAITING_FOR_RAY_CLUSTER, "Partita makes the Service once the Ray cluster serves.")
    return replace(addresses, finding=finding, actions=actions)


def needed_objects(session: InferenceSession) -> tuple[ObjectName, ...]:
    """Kinds and names of the objects that the session must own."""
    return (service_name(session),)


def _changes(world: SessionWorld, exposure: ExposureWorld) -> tuple[Action, ...]:
    """The Service stays while no Ray cluster serves. EndpointSlices stay while no frontend reports its ports."""
    session, backend = world.session, exposure.backend
    if backend is None:
        return ()
    keeps_slices = backend.frontends is None and bool(direct_ports(session))
    kept: list[ObjectName] = [
        object_name(found) for found in exposure.objects if found["kind"] == ENDPOINT_SLICE and keeps_slices
    ]
    desired = [service(session, backend), *endpoint_slices(session, backend)]
    return object_changes(desired, exposure.objects, kept)


def _addresses_of_engine(world: SessionWorld) -> Exposure:
    serving, before = world.serving, world.session.status
    if serving is None:
        return Exposure(before.url, before.grpc_address, before.http_address)
    return Exposure(serving.url, serving.grpc_address, serving.http_address)


def _addresses_before(world: SessionWorld, of_engine: Exposure) -> Exposure:
    """The addresses in the status, so that they stay until the objects are read after a start of the operator."""
    before = world.session.status
    if before.url is None:
        return of_engine
    return Exposure(before.url, before.grpc_address, before.http_address)


def _addresses_of_service(world: SessionWorld, exposure: ExposureWorld, of_engine: Exposure) -> Exposure:
    """The Service's addresses; those of frontends without EndpointSlices are the engine's."""
    host = host_of(world.session)

    def direct(port: str, otherwise: str | None) -> str | None:
        return f"{host}:{PORTS[port]}" if has_endpoints(exposure.objects, port) else otherwise

    return Exposure(
        url=f"http://{host}{route_prefix(world.session.key)}",
        grpc_address=direct(GRPC, of_engine.grpc_address),
        http_address=direct(HTTP_DIRECT, of_engine.http_address),
    )


def _ready_message(world: SessionWorld, exposure: ExposureWorld) -> str:
    message = f"Clients in the cluster reach the session at Service {world.session.metadata.name}."
    unknown = exposure.backend.unknown if exposure.backend is not None else ()
    if not unknown:
        return message
    return (
        f"{message} Frontends report {listed(unknown)}, which no pod of their Ray cluster has: the Service does not "
        "lead there."
    )


def _taken_message(world: SessionWorld) -> str:
    session = world.session
    name = session.metadata.name
    if is_reserved(session):
        return f"KubeRay makes Services with names like {name}. Create the session again under another name."
    return (
        f"Service {name} exists and does not belong to the session, so Partita leaves it as it is. Rename or delete "
        "the Service, or create the session under another name."
    )


def _not(reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.EXPOSED, False, reason, message)
