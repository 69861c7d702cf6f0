"""The Kubernetes events of the objects that somebody looks at: at most one list for each in an interval."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from partita_operator.console.reading.snapshot import EventLine, ObjectEvents
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError
from partita_operator.kube.errors import KubernetesError
from partita_operator.kube.resources import EventResource, equal

PATIENCE_S: Final = 1.0
"""How long a page waits for events. If they take longer, it shows those known before."""
_REMEMBERED: Final = 200
"""Objects whose events are kept."""
_SHOWN: Final = 50
_CLUSTER_EVENTS: Final = "default"
"""The namespace of the events of cluster-scoped objects."""


@dataclass
class _Known:
    events: ObjectEvents = field(default_factory=ObjectEvents)
    asked_at: datetime | None = None
    asking: asyncio.Task[None] | None = None


class ObjectEventReader:
    """Events by the uid of their object."""

    def __init__(self, client: KubernetesClient, clock: Callable[[], datetime], interval_s: float = 5.0) -> None:
        self._client, self._clock, self._interval = client, clock, timedelta(seconds=interval_s)
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def events_of(self, uid: str, namespace: str | None) -> ObjectEvents:
        """The newest events of an object, a moment old at most if the API server answers."""
        known = self._known.setdefault(uid, _Known())
        self._known.move_to_end(uid)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        now = self._clock()
        if known.asking is None and (known.asked_at is None or now - known.asked_at >= self._interval):
            known.asked_at = now
            known.asking = asyncio.create_task(self._ask(known, uid, namespace or _CLUSTER_EVENTS))
        if known.asking is not None:
            await asyncio.wait((known.asking,), timeout=PATIENCE_S)
        return known.events

    async def _ask(self, known: _Known, uid: str, namespace: str) -> None:
        try:
            found = await self._client.list(EventResource, namespace, fields=equal({"involvedObject.uid": uid}))
            lines = sorted((_line(event) for event in found), key=lambda line: line.at, reverse=True)
            known.events = ObjectEvents(tuple(lines[:_SHOWN]))
        except (KubernetesError, NoClusterError) as error:
            known.events = ObjectEvents(known.events.lines, f"They cannot be read: {error}")
        finally:
            known.asking = None


def _line(event: Mapping[str, Any]) -> EventLine:
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return EventLine(
        at=str(at or ""),
        type=str(event.get("type") or ""),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        count=int(event.get("count") or 1),
    )
