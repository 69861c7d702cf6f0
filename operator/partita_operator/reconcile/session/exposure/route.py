"""What is missing until a route of a session leads from its Gateway to the session."""

from collections.abc import Iterator, Mapping
from typing import Any

from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.object_changes import Document
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.exposure.condition import not_exposed, unknown_exposure
from partita_operator.reconcile.session.exposure.gateway import listener_for, refusals


def route_obstacle(gateway: Document, manifest: Document, present: Document | None) -> Finding | None:
    """Why clients do not reach the session by the route, the most basic first; None if they do.

    `present` is the route as it is; None if it is not written yet.
    """
    name = _name(gateway)
    if not gateway["spec"].get("listeners"):
        return not_exposed(Reason.NO_LISTENER, f"Gateway {name} has no listeners. Add one to its spec.")
    if listener_for(gateway, manifest) is None:
        (host,) = manifest["spec"]["hostnames"]
        why = listed(list(refusals(gateway, manifest)), "; ")
        return not_exposed(
            Reason.NO_LISTENER,
            f"No listener of Gateway {name} accepts a route of kind {manifest['kind']} for host {host}: {why}. Change "
            "the Gateway, or spec.expose.gateway.",
        )
    return _not_accepted(gateway, manifest, present)


def _not_accepted(gateway: Document, manifest: Document, present: Document | None) -> Finding | None:
    """What the Gateway's controller says about the route."""
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    accepted = False
    for condition in _conditions(manifest, present):
        if condition["type"] in ("Accepted", "ResolvedRefs") and condition["status"] == "False":
            said = f"{condition['reason']}: {condition.get('message', '')}".rstrip(": ")
            return not_exposed(
                Reason.ROUTE_REJECTED,
                f"The controller of Gateway {_name(gateway)} rejects {what}. {said.removesuffix('.')}.",
            )
        accepted |= condition["type"] == "Accepted" and condition["status"] == "True"
    if accepted:
        return None
    return unknown_exposure(
        Reason.WAITING_FOR_CONTROLLER,
        f"No controller has answered for {what}. Check the controller of Gateway {_name(gateway)}."
        f"{_gateway_problem(gateway)}",
    )


def _conditions(manifest: Document, present: Document | None) -> Iterator[Mapping[str, Any]]:
    """The conditions that controllers have set for the route at its Gateway, about its present spec."""
    if present is None:
        return
    (own,) = manifest["spec"]["parentRefs"]
    generation = present["metadata"].get("generation", 0)
    for parent in (present.get("status") or {}).get("parents") or ():
        found = {"namespace": present["metadata"]["namespace"], **parent["parentRef"]}
        if any(found.get(key) != own.get(key) for key in ("namespace", "name", "sectionName")):
            continue
        for condition in parent.get("conditions") or ():
            if condition.get("observedGeneration", generation) >= generation:
                yield condition


def _gateway_problem(gateway: Document) -> str:
    """What the Gateway's own conditions say is wrong."""
    for condition in (gateway.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Accepted", "Programmed") and condition["status"] != "True":
            return f" Its condition {condition['type']} is {condition['status']}: {condition.get('message', '')}"
    return ""


def _name(gateway: Document) -> str:
    return f"{gateway['metadata']['namespace']}/{gateway['metadata']['name']}"
