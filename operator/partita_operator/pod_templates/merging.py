"""Merges pod templates: what Partita and the settings say, then the session's, then the pool's.

| field | rule |
|---|---|
| image, serviceAccountName, priorityClassName, schedulerName | the last one that is set |
| metadata.labels, metadata.annotations, nodeSelector, securityContext | by key; the last value |
| env, volumes, imagePullSecrets | by name; the last entry, as a whole |
| volumeMounts | by mountPath; the last entry |
| topologySpreadConstraints | by topologyKey and whenUnsatisfiable; the last entry |
| resources | by resource: a template that names it replaces its request and its limit |
| tolerations, envFrom | all entries, in this order |
| affinity | required node affinity: all templates must hold. Everything else: all entries, in this order |
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from partita_api.pod.template import PodTemplate

TemplateDocument = Mapping[str, Any]
"""A pod template as JSON data, without what is not set."""

_KEYS: Final[Mapping[str, Callable[[Mapping[str, Any]], Hashable]]] = {
    "env": lambda entry: entry["name"],
    "volumes": lambda entry: entry["name"],
    "imagePullSecrets": lambda entry: entry["name"],
    "volumeMounts": lambda entry: entry["mountPath"],
    "topologySpreadConstraints": lambda entry: (entry["topologyKey"], entry["whenUnsatisfiable"]),
}
"""What identifies the entries of a list."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def template_document(template: PodTemplate) -> dict[str, Any]:
    """A pod template as JSON data, without what is not set."""
    document: dict[str, Any] = template.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return document


def merged(before: TemplateDocument, after: TemplateDocument) -> dict[str, Any]:
    """Both templates as one."""
    result = dict(before)
    for field, value in after.items():
        result[field] = _combined(field, result[field], value) if field in result else value
    return result


def _combined(field: str, before: Any, after: Any) -> Any:
    match field:
        case "metadata":
            return {key: {**before.get(key, {}), **after.get(key, {})} for key in (*before, *after)}
        case "nodeSelector" | "securityContext":
            return {**before, **after}
        case "tolerations" | "envFrom":
            return [*before, *(entry for entry in after if entry not in before)]
        case "resources":
            return _resources(before, after)
        case "affinity":
            return _affinity(before, after)
    return _by_key(before, after, _KEYS[field]) if field in _KEYS else after


def _by_key(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    key: Callable[[Mapping[str, Any]], Hashable],
) -> list[Mapping[str, Any]]:
    """Entries keep their place."""
    return list(({key(entry): entry for entry in before} | {key(entry): entry for entry in after}).values())


def _resources(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    named = {resource for part in ("requests", "limits") for resource in after.get(part, {})}
    parts = {
        part: {
            **{resource: amount for resource, amount in before.get(part, {}).items() if resource not in named},
            **after.get(part, {}),
        }
        for part in ("requests", "limits")
    }
    return {**before, **parts}


def _affinity(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for kind in dict.fromkeys((*before, *after)):
        one, other = before.get(kind, {}), after.get(kind, {})
        both = {part: [*one.get(part, ()), *other.get(part, ())] for part in (_PREFERRED, _REQUIRED)}
        if kind == "nodeAffinity":
            both[_REQUIRED] = _terms_of_both(one.get(_REQUIRED), other.get(_REQUIRED))
        result[kind] = {part: entries for part, entries in both.items() if entries}
    return result


def _terms_of_both(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Any:
    """A node selector for nodes that both select. A node meets a selector if it meets one of its terms."""
    if one is None or other is None:
        return one or other
    pairs = product(one["nodeSelectorTerms"], other["nodeSelectorTerms"])
    terms = [{"matchExpressions": [*a["matchExpressions"], *b["matchExpressions"]]} for a, b in pairs]
    return {"nodeSelectorTerms": terms}
