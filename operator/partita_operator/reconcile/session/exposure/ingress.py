"""A session's Ingress: its manifest, and what is missing until clients reach the session through it."""

from typing import Any, Final

from partita_api.inferencesession import InferenceSession
from partita_api.session.expose import IngressExposure
from partita_operator.reconcile.findings import Finding
from partita_operator.reconcile.object_changes import Document
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.exposure.condition import not_exposed, unknown_exposure
from partita_operator.reconcile.session.exposure.policy import ingress_class
from partita_operator.reconcile.session.exposure.service import HTTP, PUBLIC_PATH, owned
from partita_operator.reconcile.world import PublicWorld
from partita_operator.settings.exposure import ExposureSettings
from partita_runtime.serving.deploy.names import route_prefix

INGRESS: Final = "Ingress"


def ingress(session: InferenceSession, exposure: IngressExposure, settings: ExposureSettings) -> dict[str, Any]:
    """The Ingress. The path is not rewritten: Ray Serve finds the session by it."""
    backend = {"service": {"name": session.metadata.name, "port": {"name": HTTP}}}
    path = {"path": f"{route_prefix(session.key)}{PUBLIC_PATH}", "pathType": "Prefix", "backend": backend}
    spec: dict[str, Any] = {
        "ingressClassName": ingress_class(exposure, settings),
        "rules": [{"host": exposure.host, "http": {"paths": [path]}}],
    }
    if exposure.tls_secret_name is not None:
        spec["tls"] = [{"hosts": [exposure.host], "secretName": exposure.tls_secret_name}]
    metadata = {"annotations": dict(exposure.annotations)}
    return owned(session, "networking.k8s.io/v1", INGRESS, session.metadata.name, metadata=metadata, spec=spec)


def ingress_url(session: InferenceSession, exposure: IngressExposure) -> str:
    """The session's URL through the Ingress."""
    scheme = "http" if exposure.tls_secret_name is None else "https"
    return f"{scheme}://{exposure.host}{route_prefix(session.key)}"


def ingress_addresses(present: Document) -> tuple[str, ...]:
    """The addresses that the controller has reported for the Ingress."""
    entries = ((present.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return tuple(entry.get("ip") or entry.get("hostname") or "" for entry in entries)


def ingress_obstacle(
    session: InferenceSession,
    exposure: IngressExposure,
    settings: ExposureSettings,
    world: PublicWorld,
    present: Document | None,
) -> Finding | None:
    """What is missing, the most basic first; None if clients reach the session. `present` is the session's Ingress."""
    class_name, name = ingress_class(exposure, settings), session.metadata.name
    if world.ingress_classes is not None and class_name not in world.ingress_classes:
        return not_exposed(
            Reason.INGRESS_CLASS_MISSING,
            f"IngressClass {class_name} does not exist. Install its controller, or set ingress.className.",
        )
    if world.has_tls_secret is False:
        return not_exposed(
            Reason.TLS_SECRET_MISSING,
            f"Secret {exposure.tls_secret_name} of Ingress {name} does not exist in the session's namespace. Create it "
            "with tls.crt and tls.key.",
        )
    if present is None or not ingress_addresses(present):
        return unknown_exposure(
            Reason.WAITING_FOR_CONTROLLER,
            f"No controller has reported an address of Ingress {name}. Check the controller of IngressClass "
            f"{class_name}, and that it publishes addresses in the status.",
        )
    return None
