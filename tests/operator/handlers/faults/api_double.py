"""A Kubernetes API server in memory, with real conflict semantics, as a transport of the operator's own client.

It knows what the operator uses: get, list, server-side apply, merge patch, delete, the status subresource, uids,
generations, resource versions that a patch may insist on, finalizers, and the collection of owned objects. The
field manager is always the same, so that what an apply of the status leaves out is gone.
"""

import itertools
import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import httpx2

Json = dict[str, Any]
Where = tuple[str, str, str]
"""Plural, namespace (or nothing) and name."""
CREATED = "2026-01-01T00:00:00Z"


@dataclass
class ApiDouble(httpx2.AsyncBaseTransport):
    """The objects of a cluster, and the requests that change them."""

    objects: dict[Where, Json] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread() or b"null")
        return self.answer(request, body)

    def answer(self, request: httpx2.Request, body: Json | None) -> httpx2.Response:
        """What the API server answers, and does."""
        (plural, namespace, name), subresource = _place(request.url.path)
        where = (plural, namespace, name)
        if request.method == "GET" and not name:
            items = [o for w, o in sorted(self.objects.items()) if w[0] == plural and namespace in ("", w[1])]
            return _ok({"metadata": {"resourceVersion": str(next(self._numbers))}, "items": items})
        known = self.objects.get(where)
        if request.method == "PATCH" and "apply" in request.headers["Content-Type"]:
            return self._apply(where, known, body or {}, subresource)
        if known is None:
            return status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "GET":
            return _ok(known)
        if request.method == "PATCH":
            return self._merge(where, known, body or {})
        return self._delete(where, known)

    def create(self, plural: str, manifest: Json) -> None:
        """Create an object or change its spec, as its user would."""
        meta = manifest["metadata"]
        self._apply((plural, meta.get("namespace", ""), meta["name"]), self._find(plural, meta), manifest, "")

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Ask for the deletion of an object, as its user would."""
        where = (plural, namespace, name)
        self._delete(where, self.objects[where])

    def _find(self, plural: str, meta: Json) -> Json | None:
        return self.objects.get((plural, meta.get("namespace", ""), meta["name"]))

    def _apply(self, where: Where, known: Json | None, body: Json, subresource: str) -> httpx2.Response:
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

    def _merge(self, where: Where, known: Json, patch: Json) -> httpx2.Response:
        insisted = patch.get("metadata", {}).pop("resourceVersion", None)
        if insisted is not None and insisted != known["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        return self._store(where, known, _merged(known, patch))

    def _delete(self, where: Where, known: Json) -> httpx2.Response:
        if not known["metadata"].get("finalizers"):
            self._remove(where)
        else:
            after = deepcopy(known)
            after["metadata"].setdefault("deletionTimestamp", CREATED)
            self._store(where, known, after)
        return _ok({"kind": "Status", "status": "Success"})

    def _store(self, where: Where, known: Json | None, after: Json) -> httpx2.Response:
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
        """Remove an object, and what it owned, as Kubernetes' garbage collector does."""
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


def status(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> httpx2.Response:
    """A refusal as Kubernetes words it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message or reason}
    return httpx2.Response(code, json=body, headers=headers)


def _ok(body: Json) -> httpx2.Response:
    return httpx2.Response(200, json=body)


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
