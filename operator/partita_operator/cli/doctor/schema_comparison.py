"""Compares a CustomResourceDefinition of a cluster with the generated one. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from partita_api.meta import VERSION

CEL_RELEASE: Final = (1, 25)
"""The first release of Kubernetes whose API server keeps CEL rules."""
_CEL: Final = "x-kubernetes-validations"


def same_schema(found: Mapping[str, Any], expected: Mapping[str, Any], release: tuple[int, int]) -> bool:
    """Whether both have the same schema in this version of the API. Older API servers drop CEL rules."""
    with_rules = release >= CEL_RELEASE
    return bool(_schema(found, with_rules) == _schema(expected, with_rules))


def _schema(definition: Mapping[str, Any], with_rules: bool) -> Any:
    for version in (definition.get("spec") or {}).get("versions") or ():
        if version.get("name") == VERSION:
            return _comparable((version.get("schema") or {}).get("openAPIV3Schema"), with_rules)
    return None


def _comparable(node: Any, with_rules: bool) -> Any:
    """The schema without descriptions, and without empty values, which some API servers drop."""
    if isinstance(node, Mapping):
        cleaned = {
            name: _comparable(value, with_rules)
            for name, value in node.items()
            if not _is_text(name, value) and (with_rules or name != _CEL)
        }
        return {name: value for name, value in cleaned.items() if value not in ("", None, [], {})}
    return [_comparable(item, with_rules) for item in node] if isinstance(node, list) else node


def _is_text(name: str, value: Any) -> bool:
    """Whether it is the description of a schema, and not a property that is called description."""
    return name == "description" and isinstance(value, str)
