"""The API server's HTTP interface: the part of the Kubernetes API that clients of Partita's kinds use."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import yaml
from aiohttp import web
from aiohttp.typedefs import Middleware

from partita_devtools.api_server.errors import RefusedError
from partita_devtools.api_server.kinds import KINDS, Document, ServedKind
from partita_devtools.api_server.selectors import BadSelectorError, selects
from partita_devtools.api_server.store import Change, ObjectStore, Place

_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_WATCH_SECONDS: Final = 300.0
"""How long a watch lasts whose request does not say."""
_MAX_BODY: Final = 4 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class _Target:
    """What a path names."""

    kind: ServedKind
    namespace: str
    name: str
    """Empty for the collection."""
    status: bool

    @property
    def place(self) -> Place:
        return (self.kind.api_version, self.kind.plural, self.namespace, self.name)


def application(store: ObjectStore, token: str) -> web.Application:
    """The web application; every request but /readyz needs `token` as its bearer token."""
    app = web.Application(middlewares=[_errors_as_status, _authenticated(token)], client_max_size=_MAX_BODY)
    app.router.add_get("/readyz", _ready)
    app.router.add_get("/version", _version)
    app.router.add_get("/api", _discovery)
    app.router.add_get("/apis", _discovery)
    app.router.add_route("*", "/{tail:apis?/.+}", _Objects(store).handle)
    return app


@web.middleware
async def _errors_as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return web.json_response(error.document(), status=error.status)
    except web.HTTPException as error:
        status = RefusedError(HTTPStatus(error.status), f"{request.method} {request.path}: {error.reason}")
        return web.json_response(status.document(), status=error.status)


def _authenticated(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if request.path != "/readyz" and not secrets.compare_digest(given, expected):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        return await handler(request)

    return middleware


async def _ready(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _version(_: web.Request) -> web.StreamResponse:
    """The version that clients expect; its suffix says that this is not a release of Kubernetes."""
    return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.0+partita-embedded"})


async def _discovery(request: web.Request) -> web.StreamResponse:
    if request.path == "/api":
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
    versions = sorted({kind.api_version for kind in KINDS.values() if "/" in kind.api_version})
    groups = []
    for version in versions:
        entry = {"groupVersion": version, "version": version.partition("/")[2]}
        groups.append({"name": version.partition("/")[0], "versions": [entry], "preferredVersion": entry})
    return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _resources(api_version: str) -> Document:
    served = [kind for kind in KINDS.values() if kind.api_version == api_version]
    if not served:
        raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no API {api_version}")
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = []
    for kind in served:
        entry = {"kind": kind.kind, "namespaced": kind.namespaced, "singularName": kind.kind.lower()}
        short_names = {"shortNames": [kind.short]} if kind.short else {}
        resources.append({**entry, **short_names, "name": kind.plural, "verbs": verbs})
        if kind.has_status:
            resources.append({**entry, "name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


class _Objects:
    """Requests for objects and collections."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.match_info["tail"].split("/") if part]
        root = 2 if parts[0] == "api" else 3
        if len(parts) < root:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no {request.path}")
        api_version = "/".join(parts[1:root])
        if len(parts) == root:
            return web.json_response(_resources(api_version))
        target = _target(api_version, parts[root:])
        match request.method, bool(target.name):
            case "GET", True:
                return web.json_response(self._store.get(target.place))
            case "GET", False:
                return await self._list_or_watch(request, target)
            case "POST", False:
                created = self._store.create(target.kind, target.namespace, await _document(request), _now())
                return web.json_response(created, status=HTTPStatus.CREATED)
            case "PUT", True:
                body = await _document(request)
                return web.json_response(
                    self._store.replace(target.kind, target.place, body, _now(), status=target.status)
                )
            case "PATCH", True:
                return web.json_response(await self._patch(request, target))
            case "DELETE", True:
                return web.json_response(self._store.delete(target.kind, target.place, _now()))
            case _:
                raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} {request.path} is not supported")

    async def _patch(self, request: web.Request, target: _Target) -> Document:
        if request.content_type not in (_APPLY, _MERGE):
            raise RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body of a PATCH is {_APPLY} or {_MERGE}, not {request.content_type}",
            )
        body = await _document(request)
        if request.content_type == _MERGE:
            return self._store.patch(target.kind, target.place, body, _now(), status=target.status)
        manager = request.query.get("fieldManager", "")
        if not manager:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "fieldManager is required for apply patch")
        force = request.query.get("force", "false").lower() == "true"
        return self._store.apply(target.kind, target.place, body, manager, _now(), status=target.status, force=force)

    async def _list_or_watch(self, request: web.Request, target: _Target) -> web.StreamResponse:
        query = request.query
        try:
            matches = selects(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        except BadSelectorError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
        if query.get("watch", "").lower() in ("1", "true"):
            return await self._watch(request, target, matches)
        self._store.forget_old_events(_now())
        items = [document for document in self._store.list(target.kind, target.namespace) if matches(document)]
        return web.json_response(
            {
                "apiVersion": target.kind.api_version,
                "kind": f"{target.kind.kind}List",
                "metadata": {"resourceVersion": str(self._store.version)},
                "items": items,
            }
        )

    async def _watch(
        self, request: web.Request, target: _Target, matches: Callable[[Document], bool]
    ) -> web.StreamResponse:
        """Stream changes until the client leaves or the time of the watch is over."""
        changes: asyncio.Queue[Change] = asyncio.Queue()
        past = self._past(target, request.query.get("resourceVersion", ""))
        for change in past:
            changes.put_nowait(change)
        selected = {_place(target, d) for d in self._store.list(target.kind, target.namespace) if matches(d)}
        # The client may know what has changed since its version, such as an object that was deleted meanwhile.
        selected |= {change.place for change in past if change.version}
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        seconds = _seconds(request.query.get("timeoutSeconds", ""))
        stop = self._store.listen(changes.put_nowait)
        try:
            await response.prepare(request)
            async with asyncio.timeout(seconds):
                while True:
                    event = _event(await changes.get(), target, matches, selected)
                    if event is not None:
                        await response.write(json.dumps(event).encode() + b"\n")
        except (TimeoutError, ConnectionError):
            return response
        finally:
            stop()

    def _past(self, target: _Target, since: str) -> list[Change]:
        """What a watch begins with: the changes after a version, or else all objects as additions."""
        if since and since != "0":
            if not since.isdigit():
                raise RefusedError(HTTPStatus.BAD_REQUEST, f"resourceVersion {since!r} is not a version")
            return list(self._store.changes_since(int(since)))
        return [
            Change("ADDED", _place(target, document), document, 0)
            for document in self._store.list(target.kind, target.namespace)
        ]


def _seconds(text: str) -> float:
    if text and not text.isdigit():
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"timeoutSeconds {text!r} is not a number of seconds")
    return float(text or _WATCH_SECONDS)


def _place(target: _Target, document: Document) -> Place:
    metadata = document["metadata"]
    return (target.kind.api_version, target.kind.plural, metadata.get("namespace", ""), metadata["name"])


def _event(
    change: Change, target: _Target, matches: Callable[[Document], bool], selected: set[Place]
) -> Document | None:
    """The watch event of a change. An object that no longer matches the selectors counts as deleted."""
    place, document = change.place, change.document
    if place[:2] != target.place[:2] or target.namespace not in ("", place[2]):
        return None
    if change.type == "DELETED" or not matches(document):
        if place not in selected:
            return None
        selected.discard(place)
        return {"type": "DELETED", "object": document}
    type = "ADDED" if place not in selected else change.type
    selected.add(place)
    return {"type": type, "object": document}


def _target(api_version: str, parts: list[str]) -> _Target:
    """What the rest of a path names: [namespaces/NAMESPACE/]PLURAL[/NAME[/status]]."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] != "status":
        namespace, parts = parts[1], parts[2:]
    kind = KINDS.get((api_version, parts[0]))
    status = len(parts) == 3 and parts[2] == "status"
    if kind is None or len(parts) > 3 or (len(parts) == 3 and not (status and kind.has_status)):
        known = ", ".join(kind.plural for kind in KINDS.values())
        raise RefusedError(
            HTTPStatus.NOT_FOUND,
            f"the embedded API server does not serve {api_version} {'/'.join(parts)}; it serves {known}",
        )
    name = parts[1] if len(parts) > 1 else ""
    if kind.namespaced and name and not namespace:
        raise RefusedError(HTTPStatus.NOT_FOUND, f"{kind.plural} have a namespace")
    return _Target(kind, namespace, name, status)


async def _document(request: web.Request) -> Document:
    text = await request.text()
    try:
        document = (
            yaml.safe_load(text) if "yaml" in request.content_type and not text.startswith("{") else json.loads(text)
        )
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("metadata") or {}, dict):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body is not an object")
    return document


def _now() -> datetime:
    return datetime.now(UTC)
