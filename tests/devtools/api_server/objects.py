"""Builders of objects and of stores in memory."""

from datetime import UTC, datetime, timedelta
from typing import Any

from partita_devtools.api_server.kinds import KINDS, Document
from partita_devtools.api_server.store import ObjectStore, Place

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
POOL = KINDS["partita.dev/v1alpha1", "gpupools"]
SESSION = KINDS["partita.dev/v1alpha1", "inferencesessions"]
PLAN = KINDS["partita.dev/v1alpha1", "pipelineplans"]
CONFIG_MAP = KINDS["v1", "configmaps"]
EVENT = KINDS["v1", "events"]
FAST: Place = ("partita.dev/v1alpha1", "gpupools", "", "fast")


class Memory:
    """A disk that can be full."""

    def __init__(self) -> None:
        self.files: dict[Place, Document] = {}
        self.full = False

    def save(self, place: Place, document: Document) -> None:
        """Keep a copy."""
        if self.full:
            raise OSError(28, "No space left on device")
        self.files[place] = document

    def delete(self, place: Place) -> None:
        """Drop an object."""
        if self.full:
            raise OSError(28, "No space left on device")
        del self.files[place]


class Cluster:
    """A store whose time advances by a second with each call."""

    def __init__(self) -> None:
        self.disk = Memory()
        self.store = ObjectStore((), self.disk, NOW)
        self._seconds = 0

    @property
    def now(self) -> datetime:
        """The time of the next call."""
        self._seconds += 1
        return NOW + timedelta(seconds=self._seconds)

    def pool(self, name: str = "fast", **spec: Any) -> Document:
        """A pool, created."""
        return self.store.create(POOL, "", {"metadata": {"name": name}, "spec": {"count": 2, **spec}}, self.now)

    def apply_pool(
        self, manager: str, *, spec: Document, labels: dict[str, str] | None = None, force: bool = False
    ) -> Document:
        """The pool after a server-side apply."""
        desired = {"metadata": {"name": "fast", **({"labels": labels} if labels else {})}, "spec": spec}
        return self.store.apply(POOL, FAST, desired, manager, self.now, status=False, force=force)

    def observe_pool(self, manager: str, status: Document) -> Document:
        """The pool after a server-side apply of its status."""
        desired = {"metadata": {"name": "fast"}, "status": status}
        return self.store.apply(POOL, FAST, desired, manager, self.now, status=True, force=True)

    def config_map(self, name: str, owner: Document | None = None, **metadata: Any) -> Document:
        """A ConfigMap, created; `owner` owns it."""
        owners = [{"uid": owner["metadata"]["uid"], "name": owner["metadata"]["name"]}] if owner else []
        body = {"metadata": {"name": name, "ownerReferences": owners, **metadata}}
        return self.store.create(CONFIG_MAP, "default", body, self.now)
