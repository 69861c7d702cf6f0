"""Kubernetes events about Partita's objects."""

import hashlib
from datetime import datetime
from typing import Final

from lightkube import ApiError, AsyncClient
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event as EventResource

from partita_api.meta import API_VERSION, FIELD_MANAGER
from partita_operator.kube.retries import is_missing, retried
from partita_operator.kube.writes import Owner
from partita_operator.reconcile.actions import Event

MAX_MESSAGE: Final = 1024
_CLUSTER_EVENTS: Final = "default"
"""The namespace that Kubernetes keeps events of cluster-scoped objects in."""


async def publish(client: AsyncClient, owner: Owner, event: Event, now: datetime) -> None:
    """Write an event; the same event at the same moment is written once."""
    meta = owner.metadata
    namespace = meta.namespace or _CLUSTER_EVENTS
    moment = f"{event.reason}{event.message}{now.isoformat()}"
    resource = EventResource(
        metadata=ObjectMeta(
            name=f"{meta.name[:200]}.{hashlib.sha256(moment.encode()).hexdigest()[:16]}", namespace=namespace
        ),
        involvedObject=ObjectReference(
            apiVersion=API_VERSION, kind=owner.kind, name=meta.name, namespace=meta.namespace, uid=meta.uid
        ),
        type=str(event.type),
        reason=event.reason,
        message=event.message[:MAX_MESSAGE],
        source=EventSource(component=FIELD_MANAGER),
        reportingComponent=FIELD_MANAGER,
        firstTimestamp=now,
        lastTimestamp=now,
        count=1,
    )
    try:
        await retried(lambda: client.apply(resource, force=True))
    except ApiError as error:
        # The namespace may be going; then nobody reads its events.
        if not is_missing(error) and error.status.code != 403:
            raise
