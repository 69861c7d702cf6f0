"""Which of a session's objects to write, its addresses, and the condition Exposed."""

from dataclasses import dataclass, replace
from typing import Final

from partita_api.conditions import ConditionType
from partita_api.inferencesession import EngineType, InferenceSession
from partita_operator.ports import GRPC, HTTP_DIRECT
from partita_operator.reconcile.actions import Action, ApplyObject, DeleteObject
from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.object_changes import ObjectName, object_changes, object_name
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.exposure.condition import name_taken, not_exposed, unknown_exposure
from partita_operator.reconcile.session.exposure.public import (
    PUBLIC_KINDS,
    PublicAddress,
    needed_public_objects,
    public_address,
)
from partita_operator.reconcile.session.exposure.service import (
    ENDPOINT_SLICE,
    PORTS,
    SERVICE,
    direct_ports,
    endpoint_slices,
    has_endpoints,
    host_of,
    is_reserved,
    service,
    service_name,
)
from partita_operator.reconcile.world import ExposureWorld, SessionWorld
from partita_operator.settings.exposure import ExposureSettings
from partita_runtime.serving.deploy.names import route_prefix

_NO_SERVICE: Final = (
    "Engine Ray has no Service: the processes of its Ray cluster need not be pods of this Kubernetes cluster. Clients "
    "use status.url."
)


@dataclass(frozen=True)
class Exposure:
    """How clients reach the session."""

    url: str | None = None
    cluster_url: str | None = None
    """The URL in the cluster, if `url` is public."""
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
        return replace(of_engine, finding=_without_service(world.session), actions=left)
    if exposure is None:
        return _addresses_before(world) or Exposure()
    if is_reserved(world.session) or service_name(world.session) in exposure.taken:
        left = object_changes((), [found for found in exposure.objects if found["kind"] in PUBLIC_KINDS])
        return replace(of_engine, finding=_taken(world.session), actions=left)
    there = service_name(world.session) in map(object_name, exposure.objects)
    if not there:
        finding = not_exposed(Reason.WAITING_FOR_RAY_CLUSTER, "Partita makes the Service once there is a Ray cluster.")
        # A client that reads a URL keeps it, so there is none before the Service is written.
        url = _service_url(world.session) if exposure.backend is not None else None
        return replace(
            of_engine,
            url=of_engine.url if exposure.problem else url,
            finding=_failed(exposure) or finding,
            actions=_changes(world, exposure),
        )
    public = public_address(world, exposure)
    actions = _changes(world, exposure, public)
    if not public.known and public.finding is None:
        return replace(_addresses_before(world) or Exposure(), actions=actions)
    addresses = _addresses_of_service(world, exposure, of_engine)
    if public.url is not None:
        addresses = replace(addresses, url=public.url, cluster_url=addresses.url)
    if public.grpc_address is not None:
        addresses = replace(addresses, grpc_address=public.grpc_address)
    finding = _failed(exposure) or _with_service(public, world, exposure)
    return replace(addresses, finding=finding, actions=actions)


def needed_objects(session: InferenceSession, settings: ExposureSettings) -> tuple[ObjectName, ...]:
    """Kinds and names of the objects that the session must own."""
    return (service_name(session), *needed_public_objects(session, settings))


def _changes(
    world: SessionWorld, exposure: ExposureWorld, public: PublicAddress | None = None
) -> tuple[ApplyObject | DeleteObject, ...]:
    """The Service stays while no Ray cluster serves. EndpointSlices stay while no frontend reports its ports.

    `public` None: the session has no Service yet, and its public objects stay.
    """
    session, backend = world.session, exposure.backend
    keeps_slices = backend is None or (backend.frontends is None and bool(direct_ports(session)))
    keeps_public = public is None or not public.known
    kept: list[ObjectName] = [
        object_name(found)
        for found in exposure.objects
        if (found["kind"] == SERVICE and backend is None)
        or (found["kind"] == ENDPOINT_SLICE and keeps_slices)
        or (found["kind"] in PUBLIC_KINDS and keeps_public)
    ]
    desired = [service(session, backend), *endpoint_slices(session, backend)] if backend is not None else []
    return object_changes([*desired, *(public.manifests if public is not None else ())], exposure.objects, kept)


def _addresses_of_engine(world: SessionWorld) -> Exposure:
    serving = world.serving
    if serving is None:
        return _addresses_before(world) or Exposure()
    return Exposure(url=serving.url, grpc_address=serving.grpc_address, http_address=serving.http_address)


def _addresses_before(world: SessionWorld) -> Exposure | None:
    """The addresses in the status, so that they stay until the objects are read after a start of the operator."""
    before = world.session.status
    if before.url is None:
        return None
    return Exposure(before.url, before.cluster_url, before.grpc_address, before.http_address)


def _addresses_of_service(world: SessionWorld, exposure: ExposureWorld, of_engine: Exposure) -> Exposure:
    """The Service's addresses; those of frontends without EndpointSlices are the engine's."""
    host = host_of(world.session)

    def direct(port: str, otherwise: str | None) -> str | None:
        return f"{host}:{PORTS[port]}" if has_endpoints(exposure.objects, port) else otherwise

    return Exposure(
        url=_service_url(world.session),
        grpc_address=direct(GRPC, of_engine.grpc_address),
        http_address=direct(HTTP_DIRECT, of_engine.http_address),
    )


def _service_url(session: InferenceSession) -> str:
    return f"http://{host_of(session)}{route_prefix(session.key)}"


def _without_service(session: InferenceSession) -> Finding:
    if session.spec.expose is None:
        return not_exposed(Reason.NO_SERVICE, _NO_SERVICE)
    return not_exposed(Reason.EXPOSE_UNSUPPORTED, f"spec.expose needs engine KubeRay. {_NO_SERVICE}")


def _failed(exposure: ExposureWorld) -> Finding | None:
    return not_exposed(Reason.EXPOSURE_FAILED, f"{exposure.problem} Partita tries again.") if exposure.problem else None


def _with_service(public: PublicAddress, world: SessionWorld, exposure: ExposureWorld) -> Finding:
    """The condition of a session that has its Service."""
    message = _ready_message(world, exposure)
    if public.finding is None and exposure.public.has_dns is False:
        return unknown_exposure(Reason.NO_CLUSTER_DNS, f"{_without_dns(world.session, exposure)} {message}")
    if public.finding is None:
        return Finding(ConditionType.EXPOSED, True, Reason.SERVICE_READY, message)
    return replace(public.finding, message=f"{public.finding.message} {message}")


def _without_dns(session: InferenceSession, exposure: ExposureWorld) -> str:
    found = next(found for found in exposure.objects if object_name(found) == service_name(session))
    address = (found.get("spec") or {}).get("clusterIP")
    return (
        "Names of Services do not resolve in the operator's pod. Install a cluster DNS such as CoreDNS. Without one, "
        f"clients replace {host_of(session)} by the Service's address{f' {address}' if address else ''}."
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


def _taken(session: InferenceSession) -> Finding:
    kind, name = service_name(session)
    if not is_reserved(session):
        return name_taken(kind, name)
    return not_exposed(
        Reason.NAME_TAKEN,
        f"KubeRay makes Services with names like {name}. Create the session again under another name.",
    )
