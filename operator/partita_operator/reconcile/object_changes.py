"""What has to be written, so that the objects that Partita makes are as desired. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from partita_api.digests import digest
from partita_api.meta import MANIFEST_ANNOTATION
from partita_operator.reconcile.actions import ApplyObject, DeleteObject

Document = Mapping[str, Any]
ObjectName = tuple[str, str]
"""Kind and name, within one namespace."""

_SHARED_LISTS: Final = frozenset({("Service", "ports")})
"""Lists that several field managers may extend: kind and field. Items of others stay."""
_WHOLE_FIELDS: Final = frozenset({"selector", "matchLabels"})
"""Mappings that are replaced as a whole."""


def object_name(document: Document) -> ObjectName:
    """Kind and name of an object or a manifest."""
    return document["kind"], document["metadata"]["name"]


def marked(manifest: Document) -> dict[str, Any]:
    """The manifest with its digest as an annotation, by which a field that is not desired any more is noticed."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), MANIFEST_ANNOTATION: digest(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def object_changes(
    desired: Iterable[Document], present: Iterable[Document], kept: Collection[ObjectName] = ()
) -> tuple[ApplyObject | DeleteObject, ...]:
    """The writes that lead from the `present` objects to the `desired` ones; those `kept` stay as they are.

    New objects are written before old ones are deleted.
    """
    there = {object_name(document): document for document in present}
    manifests = {object_name(manifest): marked(manifest) for manifest in desired}
    writes = [
        ApplyObject(manifest)
        for name, manifest in manifests.items()
        if name not in kept and (name not in there or not is_applied(there[name], manifest))
    ]
    deletions = [
        DeleteObject(document["apiVersion"], *name, uid=document["metadata"].get("uid", ""))
        for name, document in sorted(there.items())
        if name not in manifests and name not in kept and "deletionTimestamp" not in document["metadata"]
    ]
    return (*writes, *deletions)


def is_applied(present: Document, manifest: Document) -> bool:
    """Whether the object is as the marked manifest says."""
    return contains(present, manifest, manifest["kind"])


def contains(present: Any, desired: Any, kind: str = "") -> bool:
    """Whether `present` has everything that is desired; fields that the API server has added do not matter."""
    match desired:
        case Mapping():
            return isinstance(present, Mapping) and all(
                key in present and _field_contains(present[key], value, kind, key) for key, value in desired.items()
            )
        case list() | tuple():
            return (
                isinstance(present, list)
                and len(present) == len(desired)
                and all(contains(p, d, kind) for p, d in zip(present, desired, strict=True))
            )
    return bool(present == desired)


def _field_contains(present: Any, desired: Any, kind: str, field: str) -> bool:
    if kind and field in _WHOLE_FIELDS:
        return bool(present == desired)
    if (kind, field) in _SHARED_LISTS:
        return isinstance(present, list) and all(any(contains(p, d, kind) for p in present) for d in desired)
    return contains(present, desired, kind)
