"""Kubernetes events about Partita's objects."""

import hashlib
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from partita_api.meta import API_VERSION, FIELD_MANAGER
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError, is_conflict
from partita_operator.kube.resources import EventResource
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import Owner
from partita_operator.reconcile.actions import Event
from partita_runtime.logs import one_line

MAX_MESSAGE: Final = 1024
_CLUSTER_EVENTS: Final = "default"
"""The namespace of the events of cluster-scoped objects."""


async def publish(client: KubernetesClient, owner: Owner, event: Event, now: datetime) -> None:
    """Write an event. The same event at the same moment is written once."""
    meta = owner.metadata
    namespace = meta.namespace or _CLUSTER_EVENTS
    timestamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    moment = f"{event.reason}{event.message}{now.isoformat()}"
    manifest = {
        "metadata": {
            "name": f"{meta.name[:200]}.{hashlib.sha256(moment.encode()).hexdigest()[:16]}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": owner.kind,
            "name": meta.name,
            "uid": meta.uid,
            **({"namespace": meta.namespace} if meta.namespace else {}),
        },
        "type": str(event.type),
        "reason": event.reason,
        "message": one_line(event.message)[:MAX_MESSAGE],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }

    async def create() -> None:
        try:
            await client.create(EventResource, manifest)
        except ApiError as error:
            if not is_conflict(error):  # it is there already
                raise

    try:
        await retried(create)
    except ApiError as error:
        # The namespace may be in deletion: it refuses new events.
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise
