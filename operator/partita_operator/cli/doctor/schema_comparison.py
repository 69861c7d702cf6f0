"""Compares a CustomResourceDefinition of a cluster with the generated one. Pure."""

from collections.abc import Mapping
from typing import Any

from partita_api.meta import VERSION


def same_schema(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether both have the same schema in this version of the API."""
    return bool(_schema(found) == _schema(expected))


def _schema(definition: Mapping[str, Any]) -> Any:
    for version in (definition.get("spec") or {}).get("versions") or ():
        if version.get("name") == VERSION:
            return _comparable((version.get("schema") or {}).get("openAPIV3Schema"))
    return None


def _comparable(node: Any) -> Any:
    """The schema without descriptions, and without empty values, which some API servers drop."""
    if isinstance(node, Mapping):
        cleaned = {name: _comparable(value) for name, value in node.items() if not _is_text(name, value)}
        return {name: value for name, value in cleaned.items() if value not in ("", None, [], {})}
    return [_comparable(item) for item in node] if isinstance(node, list) else node


def _is_text(name: str, value: Any) -> bool:
    """Whether it is the description of a schema, and not a property that is called description."""
    return name == "description" and isinstance(value, str)
