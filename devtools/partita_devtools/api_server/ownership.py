"""Server-side apply: which fields of an object each manager has applied, and what a new application changes.

Lists count as one field. The managers' entries have the format of Kubernetes (`metadata.managedFields`), but only
applications are recorded, no other writes.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

Document = dict[str, Any]
Fields = dict[str, Any]
"""FieldsV1: `f:<key>` for each key, with the fields below it."""

_OWNED_METADATA: Final = ("annotations", "finalizers", "labels", "ownerReferences")


def apply(live: Document, desired: Document, manager: str, subresource: str = "") -> tuple[Document, list[str]]:
    """The object after `manager` has applied `desired`, and the fields that another manager applied with other values.

    A field that the manager applied earlier and leaves out now is removed, unless another manager applied it, too.
    """
    entries: list[Document] = list(live["metadata"].get("managedFields") or [])
    own = [e for e in entries if _is_of(e, manager, subresource)]
    others = [e for e in entries if not _is_of(e, manager, subresource)]
    desired = _without_identity(desired)
    fields = _fields(desired)
    leaves = _leaves(fields)
    conflicts = sorted(
        f"{'.'.join(path)} (by {entry['manager']})"
        for entry in others
        for path in _leaves(entry["fieldsV1"])
        if path in leaves and _value(live, path) != _value(desired, path)
    )
    after = deepcopy(live)
    kept = {path for entry in others for path in _leaves(entry["fieldsV1"])}
    for entry in own:
        for path in _leaves(entry["fieldsV1"]):
            if path not in leaves and path not in kept:
                _remove(after, path)
    _merge(after, desired)
    entry = {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}
    if subresource:
        entry["subresource"] = subresource
    after["metadata"]["managedFields"] = [*others, entry]
    return after, conflicts


def merge_patch(target: Any, patch: Any) -> Any:
    """`target` after the patch (RFC 7386): null removes a field."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _is_of(entry: Document, manager: str, subresource: str) -> bool:
    return (entry["manager"], entry.get("subresource", "")) == (manager, subresource)


def _without_identity(desired: Document) -> Document:
    """What a manager can own of its manifest."""
    owned = {key: deepcopy(value) for key, value in desired.items() if key not in ("apiVersion", "kind")}
    metadata = owned.pop("metadata", None) or {}
    if part := {key: metadata[key] for key in _OWNED_METADATA if key in metadata}:
        owned["metadata"] = part
    return owned


def _fields(value: Document) -> Fields:
    return {f"f:{key}": _fields(below) if isinstance(below, dict) else {} for key, below in value.items()}


def _leaves(fields: Fields, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not fields:
        return {path} if path else set()
    return {leaf for key, below in fields.items() for leaf in _leaves(below, (*path, key.removeprefix("f:")))}


def _value(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _remove(document: Document, path: tuple[str, ...]) -> None:
    """Remove a field, and the objects around it that are empty then."""
    key, *rest = path
    if key not in document:
        return
    if rest and isinstance(document[key], dict):
        _remove(document[key], tuple(rest))
        if document[key]:
            return
    elif rest:
        return
    del document[key]


def _merge(document: Document, desired: Document) -> None:
    for key, value in desired.items():
        present = document.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        else:
            document[key] = deepcopy(value)
