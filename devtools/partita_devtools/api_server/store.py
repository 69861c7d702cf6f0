"""The objects of the API server by the rules of Kubernetes: versions, generations, finalizers, owners, status.

Each change is saved before it is visible. The caller passes the time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, Protocol
from uuid import uuid4

from partita_devtools.api_server.errors import RefusedError
from partita_devtools.api_server.kinds import KINDS, Document, ServedKind
from partita_devtools.api_server.ownership import apply, merge_patch

Place = tuple[str, str, str, str]
"""apiVersion, plural, namespace (empty for cluster-scoped objects) and name."""

EVENTS_KEPT: Final = timedelta(hours=1)
"""How long objects of kind Event are kept, as in Kubernetes."""
_CHANGES_KEPT: Final = 4096
"""Changes that a watch can still ask for."""
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class Disk(Protocol):
    """Where objects are saved. Both methods raise OSError and change nothing then."""

    def save(self, place: Place, document: Document) -> None:
        """Write or replace an object."""

    def delete(self, place: Place) -> None:
        """Delete an object."""


@dataclass(frozen=True)
class Change:
    """A creation, change or deletion."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    place: Place
    document: Document
    version: int


class ObjectStore:
    """All objects. Methods raise RefusedError; documents that they return must not be changed."""

    def __init__(self, objects: Iterable[tuple[Place, Document]], disk: Disk, now: datetime) -> None:
        self._objects = dict(objects)
        self._disk = disk
        # It grows over restarts, even if the newest object was deleted, so that no version is used twice.
        self.version = int(now.timestamp() * 1_000_000)
        self._changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self._first_version = self.version
        self._listeners: list[Callable[[Change], None]] = []

    def get(self, place: Place) -> Document:
        """One object."""
        try:
            return self._objects[place]
        except KeyError:
            raise RefusedError(HTTPStatus.NOT_FOUND, f'{place[1]} "{place[3]}" not found') from None

    def list(self, kind: ServedKind, namespace: str) -> Sequence[Document]:
        """The objects of a kind in a namespace, or in all of them."""
        return [
            document
            for place, document in sorted(self._objects.items())
            if place[:2] == (kind.api_version, kind.plural) and namespace in ("", place[2])
        ]

    def changes_since(self, version: int) -> Sequence[Change]:
        """The changes after a version. Refused with 410 if they are not known any more."""
        oldest = self._changes[0].version - 1 if len(self._changes) == _CHANGES_KEPT else self._first_version
        if version < oldest:
            raise RefusedError(HTTPStatus.GONE, f"too old resource version: {version}")
        return [change for change in self._changes if change.version > version]

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with each change from now on, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def create(self, kind: ServedKind, namespace: str, body: Document, now: datetime) -> Document:
        """Create an object."""
        place = _place(kind, namespace, body)
        if place in self._objects:
            raise RefusedError(HTTPStatus.CONFLICT, f'{place[1]} "{place[3]}" already exists', "AlreadyExists")
        return self._commit(kind, place, None, _without_status(kind, deepcopy(body)), now)

    def replace(self, kind: ServedKind, place: Place, body: Document, now: datetime, *, status: bool) -> Document:
        """Replace an object, or only its status."""
        old = self.get(place)
        return self._commit(kind, place, old, _body(kind, old, deepcopy(body), status=status), now)

    def patch(self, kind: ServedKind, place: Place, patch: Document, now: datetime, *, status: bool) -> Document:
        """Merge a patch into an object (RFC 7386), or into its status."""
        old = self.get(place)
        return self._commit(kind, place, old, _body(kind, old, merge_patch(old, patch), status=status), now)

    def apply(
        self,
        kind: ServedKind,
        place: Place,
        desired: Document,
        manager: str,
        now: datetime,
        *,
        status: bool,
        force: bool,
    ) -> Document:
        """Server-side apply of an object or its status; creates an object that does not exist."""
        old = self._objects.get(place)
        if old is None and status:
            self.get(place)
        _check_preconditions(old, desired)
        part = {"metadata": {}, "status": desired.get("status") or {}} if status else _without_status(kind, desired)
        base = old or {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": place[3]}}
        new, conflicts = apply(base, part, manager, "status" if status else "")
        if conflicts and not force:
            raise RefusedError(HTTPStatus.CONFLICT, f"Apply failed with conflicts: {'; '.join(conflicts)}")
        return self._commit(kind, place, old, new, now)

    def delete(self, kind: ServedKind, place: Place, now: datetime) -> Document:
        """Delete an object, or mark it as deleted while it has finalizers."""
        old = self.get(place)
        if not old["metadata"].get("finalizers"):
            self._remove(place, now)
            return old
        if old["metadata"].get("deletionTimestamp"):
            return old
        new = deepcopy(old)
        new["metadata"] |= {"deletionTimestamp": now.strftime(_TIME_FORMAT), "deletionGracePeriodSeconds": 0}
        return self._commit(kind, place, old, new, now)

    def forget_old_events(self, now: datetime) -> None:
        """Delete objects of kind Event that are older than EVENTS_KEPT, unless the disk is full."""
        oldest = (now - EVENTS_KEPT).strftime(_TIME_FORMAT)
        with suppress(RefusedError):
            for document in self.list(KINDS["v1", "events"], ""):
                if document["metadata"]["creationTimestamp"] < oldest:
                    self._remove(_place(KINDS["v1", "events"], "", document), now)

    def _commit(self, kind: ServedKind, place: Place, old: Document | None, new: Document, now: datetime) -> Document:
        _check_preconditions(old, new)
        _set_identity(kind, place, old, new, now)
        if old is not None and new == old:
            return old
        if problem := kind.problem(new, old):
            raise RefusedError(
                HTTPStatus.UNPROCESSABLE_ENTITY, f'{kind.kind}.{kind.api_version} "{place[3]}" is invalid: {problem}'
            )
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._remove(place, now)
            return new
        version = self.version + 1
        new["metadata"]["resourceVersion"] = str(version)
        self._on_disk(lambda: self._disk.save(place, new))
        self._objects[place] = new
        self._publish(Change("ADDED" if old is None else "MODIFIED", place, new, version))
        return new

    def _remove(self, place: Place, now: datetime) -> None:
        """Delete an object, and then those that it owns."""
        self._on_disk(lambda: self._disk.delete(place))
        gone = deepcopy(self._objects.pop(place))
        version = self.version + 1
        gone["metadata"]["resourceVersion"] = str(version)
        self._publish(Change("DELETED", place, gone, version))
        uid = gone["metadata"]["uid"]
        for other, document in list(self._objects.items()):
            owners = [owner.get("uid") for owner in document["metadata"].get("ownerReferences") or ()]
            if owners == [uid] and other in self._objects:
                self.delete(KINDS[other[:2]], other, now)

    def _publish(self, change: Change) -> None:
        self.version = change.version
        self._changes.append(change)
        for listener in tuple(self._listeners):
            listener(change)

    def _on_disk(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise RefusedError(
                HTTPStatus.INSUFFICIENT_STORAGE,
                f"the change cannot be saved: {error}. Nothing has changed; make room on the disk, then repeat it",
            ) from error


def _place(kind: ServedKind, namespace: str, body: Document) -> Place:
    metadata = body.get("metadata") or {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"metadata.name {name!r} is not a name")
    if not kind.namespaced:
        return (kind.api_version, kind.plural, "", name)
    return (kind.api_version, kind.plural, namespace or metadata.get("namespace") or "default", name)


def _without_status(kind: ServedKind, body: Document) -> Document:
    return {key: value for key, value in body.items() if key != "status" or not kind.has_status}


def _body(kind: ServedKind, old: Document, new: Document, *, status: bool) -> Document:
    """The object with only the part changed that the request may change."""
    if not kind.has_status:
        return new
    if not status:
        kept = {"status": old["status"]} if "status" in old else {}
        return {**_without_status(kind, new), **kept}
    metadata = {**old["metadata"], **{k: v for k, v in new["metadata"].items() if k in ("uid", "resourceVersion")}}
    return {**old, "metadata": metadata, "status": new.get("status") or {}}


def _check_preconditions(old: Document | None, new: Document) -> None:
    """A uid or a version in the request must be that of the present object."""
    desired, present = new.get("metadata") or {}, (old or {}).get("metadata") or {}
    for field, what in (("uid", "UID"), ("resourceVersion", "version")):
        if desired.get(field) and desired[field] != present.get(field):
            raise RefusedError(
                HTTPStatus.CONFLICT, f"{what} in the request: {desired[field]}, of the object: {present.get(field)}"
            )


def _set_identity(kind: ServedKind, place: Place, old: Document | None, new: Document, now: datetime) -> None:
    """The fields of the metadata that clients cannot change."""
    metadata: dict[str, Any] = {**(new.get("metadata") or {}), "name": place[3]}
    _check_metadata(metadata)
    new["metadata"] = metadata
    new["apiVersion"], new["kind"] = kind.api_version, kind.kind
    if kind.namespaced:
        metadata["namespace"] = place[2]
    if old is None:
        metadata |= {"uid": str(uuid4()), "creationTimestamp": now.strftime(_TIME_FORMAT), "generation": 1}
        return
    before = old["metadata"]
    for field in ("uid", "creationTimestamp", "generation", "resourceVersion"):
        metadata[field] = before[field]
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    elif metadata.get("deletionTimestamp") or _content(kind, new) != _content(kind, old):
        metadata["generation"] += 1


def _check_metadata(metadata: Document) -> None:
    """Labels and annotations are texts by name, finalizers are texts, owners are objects."""
    for field in ("labels", "annotations"):
        texts = metadata.get(field) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"metadata.{field} must be texts by name")
    for field, type in (("finalizers", str), ("ownerReferences", dict)):
        items = metadata.get(field) or []
        if not isinstance(items, list) or not all(isinstance(item, type) for item in items):
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"metadata.{field} must be a list of {type.__name__}")


def _content(kind: ServedKind, document: Document) -> Document:
    return {key: value for key, value in _without_status(kind, document).items() if key != "metadata"}
