"""The reference of the custom resources: every field of the CRDs with type, default and description."""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from partita_api.crd_schema import CustomResource, structural_schema
from partita_api.meta import API_VERSION
from partita_devtools.docs.markdown import anchor, cell, code, heading, page, table

Schema = Mapping[str, Any]

_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "{} or more characters",
    "maxLength": "at most {} characters",
    "minItems": "{} or more entries",
    "maxItems": "at most {} entries",
    "minProperties": "{} or more entries",
    "maxProperties": "at most {} entries",
}


def kind_page(kind: CustomResource) -> str:
    """The page of one kind: one section for each object in its spec and status."""
    parts = {"spec": structural_schema(kind.spec), "status": structural_schema(kind.status)}
    sections = [section for part, schema in parts.items() for section in _sections(part, schema, level=2)]
    facts = [
        ["`apiVersion`", code(API_VERSION)],
        ["`kind`", code(kind.name)],
        ["scope", kind.scope.lower()],
        ["names for kubectl", ", ".join(code(name) for name in (kind.plural, kind.name.lower(), kind.short))],
        ["columns of `kubectl get`", ", ".join(code(column.name) for column in kind.columns)],
    ]
    return page(f"# {kind.name}", cell(inspect.getdoc(kind.model) or ""), table(["", ""], facts), *sections)


def _sections(path: str, schema: Schema, level: int) -> Iterator[str]:
    """The section of an object, then those of the objects in it."""
    required = schema.get("required", [])
    rows = [
        [
            code(name) + (" (required)" if name in required else ""),
            _type(f"{path}.{name}", field),
            code(_default(field)),
            cell(_description(field)),
        ]
        for name, field in schema["properties"].items()
    ]
    rules = [f"- {cell(rule['message'])}" for rule in schema.get("x-kubernetes-validations", [])]
    yield page(
        heading(level, code(path), anchor(path)),
        cell(schema.get("description", "")) if level > 2 else "",
        table(["field", "type", "default", "description"], rows),
        "Rules:\n\n" + "\n".join(rules) if rules else "",
    ).rstrip()
    for name, field in schema["properties"].items():
        inner_path, inner = _object_in(f"{path}.{name}", field)
        if inner is not None:
            yield from _sections(inner_path, inner, min(level + 1, 4))


def _object_in(path: str, schema: Schema) -> tuple[str, Schema | None]:
    """The object with fields that a field holds: itself, its entries or its values. None if there is none."""
    if "properties" in schema:
        return path, schema
    if schema.get("type") == "array":
        return _object_in(f"{path}[]", schema["items"])
    if isinstance(values := schema.get("additionalProperties"), dict):
        return _object_in(f"{path}.NAME", values)
    return path, None


def _type(path: str, schema: Schema) -> str:
    inner_path, inner = _object_in(path, schema)
    if inner is schema:
        return f"[object](#{anchor(inner_path)})"
    if schema.get("type") == "array":
        return f"list of {_type(f'{path}[]', schema['items'])}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"map to {_type(f'{path}.NAME', values)}"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return str(schema.get("format") or schema.get("type") or "any")


def _default(schema: Schema) -> str:
    """The default; that of an object is left out, because its own section has the defaults of its fields."""
    default = schema.get("default", {})
    if isinstance(default, dict):
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def _description(schema: Schema) -> str:
    """The description with what the API server checks."""
    parts = [str(schema.get("description", ""))]
    if "enum" in schema:
        parts.append(f"One of {', '.join(code(str(value)) for value in schema['enum'])}.")
    if bounds := [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]:
        parts.append(f"{', '.join(bounds).capitalize()}.")
    if "pattern" in schema:
        parts.append(f"Pattern: `{schema['pattern']}`.")
    return " ".join(part for part in parts if part)
