"""Hypothesis strategies for what the API server stores: from the CRDs' schemas, and garbage where they allow any."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st
from tests.crds.documents import PLAN, POOL, SESSION, Json

from partita_api.crd_schema import KINDS, structural_schema
from partita_api.meta import (
    APPROVED_ANNOTATION,
    FINALIZER,
    INPUTS_ANNOTATION,
    MANIFEST_ANNOTATION,
    PAUSED_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
    SESSION_SPEC_ANNOTATION,
)

_INT64: Final = 2**63 - 1
_ITEMS: Final = 3
"""Most items of lists and maps."""
TEXTS: Final = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["", "\x00", "\n", "\u2028", "\u202e", "<redacted>", "²", "١", "9" * 400, "x" * 5_000, "[" * 5_000]
    ),
)
TIMES: Final = st.sampled_from(
    [
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999999-23:59",
        "2026-01-01T00:00:00.123456789123Z",
        "0000-01-01T00:00:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-01t00:00:00z",
    ]
)
QUANTITIES: Final = st.one_of(
    st.integers(0, 10**15 - 1),
    st.sampled_from(["0", "0m", "000", "999999999999999.999999999Pi", "0.000000001m", "1Ki", "999999999999999P"]),
)
JSON: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-_INT64, _INT64), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=_ITEMS), st.dictionaries(TEXTS, inner, max_size=_ITEMS)),
    max_leaves=10,
)
_ANNOTATIONS: Final = (
    APPROVED_ANNOTATION,
    INPUTS_ANNOTATION,
    MANIFEST_ANNOTATION,
    PAUSED_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
    SESSION_SPEC_ANNOTATION,
)
_MARKED: Final = st.one_of(
    TEXTS,
    st.sampled_from(
        ["traffic-0123abcd@1", "traffic-0123abcd", "x@" + "9" * 5_000, "x@²", "{}", "[" * 100_000, "1e999999"]
    ),
)


def nested(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def matching(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the API server accepts for the schema; it may still refuse some for a CEL rule."""
    if schema.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return _objects(schema)
        case "array":
            return _lists(schema)
        case "string":
            return _strings(schema)
        case "integer":
            lowest, highest = schema.get("minimum", -_INT64), schema.get("maximum", _INT64)
            return st.one_of(st.sampled_from([lowest, highest]), st.integers(lowest, highest))
        case "boolean":
            return st.booleans()
    raise AssertionError(f"no strategy for {schema}")


def _strings(schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    most = schema.get("maxLength", 5_000)
    if schema.get("format") == "date-time":
        return TIMES
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z")).filter(lambda text: len(text) <= most)
    return TEXTS.map(lambda text: text[:most]).filter(lambda text: len(text) >= schema.get("minLength", 0))


def _lists(schema: Mapping[str, Any]) -> st.SearchStrategy[list[Any]]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", _ITEMS)
    keys = schema.get("x-kubernetes-list-map-keys")
    by = (lambda item: tuple(repr(item.get(key)) for key in keys)) if keys else None
    return st.lists(matching(schema["items"]), min_size=least, max_size=max(least, min(most, _ITEMS)), unique_by=by)


def _objects(schema: Mapping[str, Any]) -> st.SearchStrategy[Json]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        deep = st.sampled_from([17, 90, 150]).map(lambda levels: {"a": nested(levels)})
        return st.one_of(st.dictionaries(TEXTS, JSON, max_size=_ITEMS), deep, st.just({"a": "x" * 100_000}))
    if "additionalProperties" in schema:
        return st.dictionaries(TEXTS, matching(schema["additionalProperties"]), max_size=_ITEMS)
    fields = {name: matching(field) for name, field in schema.get("properties", {}).items()}
    required = {name: fields[name] for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional={n: f for n, f in fields.items() if n not in required})


SCHEMAS: Final = {kind.name: (structural_schema(kind.spec), structural_schema(kind.status)) for kind in KINDS}
_VALID: Final = {"InferenceSession": SESSION, "GPUPool": POOL, "PipelinePlan": PLAN}


@st.composite
def objects(draw: st.DrawFn, kind: str) -> Json:
    """An object of the kind as it is read: of the valid one's spec at most two fields differ."""
    valid = _VALID[kind]
    spec_schema, status_schema = SCHEMAS[kind]
    fields = spec_schema["properties"]
    changed = draw(st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True))
    spec = {**valid["spec"], **{name: draw(matching(fields[name])) for name in changed}}
    meta = {
        "name": valid["metadata"]["name"],
        "uid": "1",
        "resourceVersion": "1",
        "generation": draw(st.sampled_from([0, 1, _INT64])),
        "labels": draw(st.dictionaries(TEXTS, TEXTS, max_size=_ITEMS)),
        "annotations": draw(st.dictionaries(st.sampled_from(_ANNOTATIONS), _MARKED)),
        "finalizers": draw(st.lists(st.sampled_from([FINALIZER, "example.com/other"]), unique=True)),
        "creationTimestamp": draw(TIMES),
    }
    if kind != "GPUPool":
        meta["namespace"] = "default"
    if draw(st.booleans()):
        meta["deletionTimestamp"] = draw(TIMES)
    status = draw(matching(status_schema))
    return {"apiVersion": valid["apiVersion"], "kind": kind, "metadata": meta, "spec": spec, "status": status}
