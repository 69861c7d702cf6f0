"""A Kubernetes API server in memory, with real conflict semantics, in place of the official client's HTTP connections.

It supports what the operator uses: get, list, server-side apply, merge patch, delete, the status subresource, uids,
generations, resource versions as preconditions of patches, finalizers, and garbage collection of owned objects. There
is one field manager: an apply of the status removes the fields that it leaves out.
"""

import itertools
import json
from copy import deepcopy
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]
Where = tuple[str, str, str]
"""Plural, namespace (empty if there is none) and name."""
CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Request:
    """A request as the official client sends it."""

    method: str
    path: str
    content_type: str
    body: Any
    query: dict[str, str] = field(default_factory=dict)
    token: str = ""

    @property
    def plural(self) -> str:
        """The last part of the path. In a list request: the plural."""
        return self.path.rsplit("/", 1)[-1]


@dataclass
class Answer:
    """The answer, in the form of aiohttp's and of the official client's responses."""

    status: int
    document: Json
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    """The body, if it is not the document."""

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    @property
    def data(self) -> bytes:
        return (json.dumps(self.document) if self.text is None else self.text).encode()

    @property
    def response(self) -> "Answer":
        return self

    async def read(self) -> bytes:
        return self.data


class Api(Protocol):
    """Answers requests."""

    async def handle(self, request: Request) -> Answer:
        """Answer one request. Raises the same errors as aiohttp."""


@dataclass
class RestClientDouble:
    """The official client's HTTP connections, directed to `api`."""

    api: Api

    async def request(self, method: str, url: str, headers: dict[str, str], body: Any = None, **_: Any) -> Answer:
        parts, sent = urlsplit(url), json.loads(json.dumps(body))
        token, query = headers.get("authorization", ""), dict(parse_qsl(parts.query))
        return await self.api.handle(Request(method, parts.path, headers["Content-Type"], sent, query, token))

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class ApiDouble:
    """The objects of a cluster, and the requests that change them."""

    objects: dict[Where, Json] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def handle(self, request: Request) -> Answer:
        """Handle a request as the API server does."""
        body: Json | None = request.body
        (plural, namespace, name), subresource = _place(request.path)
        where = (plural, namespace, name)
        if request.method == "GET" and not name:
            items = [o for w, o in sorted(self.objects.items()) if w[0] == plural and namespace in ("", w[1])]
            return _ok({"metadata": {"resourceVersion": str(next(self._numbers))}, "items": items})
        known = self.objects.get(where)
        if request.method == "PATCH" and "apply" in request.content_type:
            return self._apply(where, known, body or {}, subresource)
        if known is None:
            return status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "GET":
            return _ok(known)
        if request.method == "PATCH":
            return self._merge(where, known, body or {})
        return self._delete(where, known)

    def create(self, plural: str, manifest: Json) -> None:
        """Create an object or change its spec, as a user does."""
        meta = manifest["metadata"]
        self._apply((plural, meta.get("namespace", ""), meta["name"]), self._find(plural, meta), manifest, "")

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Request the deletion of an object, as a user does."""
        where = (plural, namespace, name)
        self._delete(where, self.objects[where])

    def _find(self, plural: str, meta: Json) -> Json | None:
        return self.objects.get((plural, meta.get("namespace", ""), meta["name"]))

    def _apply(self, where: Where, known: Json | None, body: Json, subresource: str) -> Answer:
        if known is None and subresource:
            return status(404, "NotFound", f"{where[0]} {where[2]!r} not found")
        uid = body["metadata"].get("uid")
        if known is not None and uid is not None and uid != known["metadata"]["uid"]:
            return status(409, "Conflict", "the object has been replaced by another one of its name")
        after = deepcopy(known) if known is not None else self._new(where, body)
        if subresource:
            after["status"] = body["status"]
        else:
            for part in body.keys() - {"metadata", "status"}:
                after[part] = body[part]
            for part in ("labels", "annotations"):
                after["metadata"][part] = {**after["metadata"].get(part, {}), **body["metadata"].get(part, {})}
        return self._store(where, known, after)

    def _merge(self, where: Where, known: Json, patch: Json) -> Answer:
        insisted = patch.get("metadata", {}).pop("resourceVersion", None)
        if insisted is not None and insisted != known["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        return self._store(where, known, _merged(known, patch))

    def _delete(self, where: Where, known: Json) -> Answer:
        if not known["metadata"].get("finalizers"):
            self._remove(where)
        else:
            after = deepcopy(known)
            after["metadata"].setdefault("deletionTimestamp", CREATED)
            self._store(where, known, after)
        return _ok({"kind": "Status", "status": "Success"})

    def _store(self, where: Where, known: Json | None, after: Json) -> Answer:
        if known == after:
            return _ok(known)
        meta = after["metadata"]
        if known is None or known.get("spec") != after.get("spec"):
            meta["generation"] = meta.get("generation", 0) + 1
        meta["resourceVersion"] = str(next(self._numbers))
        self.objects[where] = after
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self._remove(where)
        return _ok(after)

    def _remove(self, where: Where) -> None:
        """Remove an object and its owned objects, as Kubernetes' garbage collector does."""
        uid = self.objects.pop(where)["metadata"]["uid"]
        for other, owned in list(self.objects.items()):
            if uid in [owner["uid"] for owner in owned["metadata"].get("ownerReferences", [])]:
                self._remove(other)

    def _new(self, where: Where, body: Json) -> Json:
        made = deepcopy(body)
        made.pop("status", None)
        made["metadata"] |= {"uid": f"uid-{next(self._numbers)}", "creationTimestamp": CREATED}
        if where[1]:
            made["metadata"]["namespace"] = where[1]
        return made


def status(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> Answer:
    """A refusal in Kubernetes' format."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message or reason}
    return Answer(code, body, headers or {})


def _ok(body: Json) -> Answer:
    return Answer(200, deepcopy(body))


def _place(path: str) -> tuple[Where, str]:
    """/apis/GROUP/VERSION or /api/VERSION, then [namespaces/NAMESPACE/]PLURAL[/NAME[/SUBRESOURCE]]."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return (plural, namespace, name), subresource


def _merged(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), part)
    return merged
