"""The public address of a session: what to write for spec.expose, and what is missing."""

from dataclasses import dataclass
from typing import Any, Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.session.expose import IngressExposure
from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.object_changes import ObjectName, object_name
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.exposure.ingress import (
    INGRESS,
    ingress,
    ingress_addresses,
    ingress_obstacle,
    ingress_url,
)
from partita_operator.reconcile.session.exposure.policy import forbidden, taken_hosts
from partita_operator.reconcile.world import ExposureWorld, KindState, SessionWorld
from partita_operator.settings.exposure import ExposureSettings

PUBLIC_KINDS: Final = frozenset({INGRESS})


@dataclass(frozen=True)
class PublicAddress:
    """What spec.expose leads to."""

    manifests: tuple[dict[str, Any], ...] = ()
    """The objects that the session should have."""
    known: bool = True
    """Whether the session's present objects are known. If not, they and the condition stay as they are."""
    url: str | None = None
    """The public URL; None while clients may not reach the session by it."""
    finding: Finding | None = None
    """The condition Exposed; None: it is only about the Service."""


def needed_public_objects(session: InferenceSession, settings: ExposureSettings) -> tuple[ObjectName, ...]:
    """Kinds and names of the objects for spec.expose; none if the platform forbids it."""
    if session.spec.expose is None or forbidden(session, settings):
        return ()
    return ((INGRESS, session.metadata.name),)


def public_address(world: SessionWorld, exposure: ExposureWorld) -> PublicAddress:
    """The public address of a session that has a Service."""
    session, settings = world.session, world.settings.exposure
    expose = session.spec.expose
    if expose is None:
        return PublicAddress()
    if problem := forbidden(session, settings):
        return PublicAddress(finding=_not(Reason.EXPOSE_NOT_ALLOWED, problem))
    if taken := taken_hosts(world):
        return PublicAddress(finding=_not(Reason.HOST_TAKEN, _host_taken_message(taken)))
    return _by_ingress(session, expose.ingress, settings, exposure)


def _by_ingress(
    session: InferenceSession, expose: IngressExposure, settings: ExposureSettings, exposure: ExposureWorld
) -> PublicAddress:
    kind = exposure.kinds.get(INGRESS, KindState(listed=False))
    if not kind.listed:
        return PublicAddress(known=False, finding=_unreadable(kind))
    name = (INGRESS, session.metadata.name)
    if name in exposure.taken:
        return PublicAddress(finding=_not(Reason.NAME_TAKEN, _name_taken_message(*name)))
    manifests = (ingress(session, expose, settings),)
    present = next((found for found in exposure.objects if object_name(found) == name), None)
    obstacle = ingress_obstacle(session, expose, settings, exposure.public, present)
    if obstacle is not None:
        return PublicAddress(manifests, finding=Finding(ConditionType.EXPOSED, *obstacle))
    assert present is not None
    url = ingress_url(session, expose)
    message = f"Clients reach the session at {url}. The controller's address is {listed(ingress_addresses(present))}."
    return PublicAddress(manifests, url=url, finding=Finding(ConditionType.EXPOSED, True, Reason.PUBLIC, message))


def _unreadable(kind: KindState) -> Finding | None:
    if not kind.problem:
        return None
    message = f"{kind.problem} Upgrade the Helm release, which adds the rights."
    return Finding(ConditionType.EXPOSED, ConditionStatus.UNKNOWN, Reason.EXPOSURE_FAILED, message)


def _host_taken_message(taken: frozenset[str]) -> str:
    return f"Another session has the host {listed(sorted(taken))}. Choose another host."


def _name_taken_message(kind: str, name: str) -> str:
    return (
        f"{kind} {name} exists and does not belong to the session, so Partita leaves it as it is. Rename or delete it, "
        "or create the session under another name."
    )


def _not(reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.EXPOSED, False, reason, message)
