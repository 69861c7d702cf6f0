"""Generates the CustomResourceDefinitions from the pydantic models.

A structural schema (apiextensions v1) has no references, no `oneOf` over types and no titles, so the JSON
schema that pydantic writes is flattened here. CEL rules come from each model's `rules` and `transition_rules`.
"""

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from partita_api.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, InferenceSessionStatus
from partita_api.meta import CATEGORY, GROUP, VERSION, Rule, SpecModel, TransitionRule
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec, PipelinePlanStatus

KEPT_KEYWORDS = (
    "type",
    "format",
    "description",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)

UNSEEN = {"observedGeneration": 0}
"""The status of an object that the operator has not seen. Without it, kstatus says that a new object is Current."""


@dataclass(frozen=True)
class Column:
    """One column that `kubectl get` prints."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class CustomResource:
    """What a CRD needs beyond its schema."""

    model: type[BaseModel]
    spec: type[BaseModel]
    status: type[BaseModel]
    plural: str
    short: str
    scope: str
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The kind's name, such as GPUPool."""
        return self.model.__name__


def _condition_column(type: str) -> Column:
    return Column(type, f'.status.conditions[?(@.type=="{type}")].status')


AGE = Column("Age", ".metadata.creationTimestamp", "date")
REASON = Column("Reason", '.status.conditions[?(@.type=="Ready")].reason')

KINDS: tuple[CustomResource, ...] = (
    CustomResource(
        GPUPool,
        GPUPoolSpec,
        GPUPoolStatus,
        "gpupools",
        "gpool",
        "Cluster",
        (
            Column("Nodes", ".status.nodes", "integer"),
            Column("Capacity", ".status.capacity", "integer"),
            Column("Pending", ".status.elastic.pending", "integer", priority=1),
            Column("Free", ".status.free"),
            Column("Price", ".spec.pricePerHour"),
            Column("Idle", ".status.idleFraction"),
            _condition_column("Ready"),
            AGE,
        ),
    ),
    CustomResource(
        InferenceSession,
        InferenceSessionSpec,
        InferenceSessionStatus,
        "inferencesessions",
        "isess",
        "Namespaced",
        (
            Column("URL", ".status.url"),
            Column("SLO", ".spec.slo.latencyMs", "integer"),
            _condition_column("SLOMet"),
            _condition_column("Ready"),
            REASON,
            Column("Plan", ".status.currentPlan.name"),
            Column("Cost/h", ".status.currentPlan.costPerHour"),
            Column("Rate", ".status.signals.offeredRate"),
            Column("P99ms", ".status.signals.p99Ms"),
            Column("Bad", ".status.signals.badRate", priority=1),
            Column("Engine", ".status.engine", priority=1),
            Column("Versions", ".status.versionShares", priority=1),
            AGE,
        ),
    ),
    CustomResource(
        PipelinePlan,
        PipelinePlanSpec,
        PipelinePlanStatus,
        "pipelineplans",
        "pplan",
        "Namespaced",
        (
            Column("Session", ".spec.session.name"),
            Column("Strategy", ".spec.solution.strategy"),
            Column("Cost/h", ".spec.cost.allocatedPerHour"),
            Column("Throughput", ".spec.throughput"),
            Column("Gap", ".spec.solution.gap", priority=1),
            Column("Approved", ".spec.approved", "boolean"),
            _condition_column("Ready"),
            REASON,
            AGE,
        ),
    ),
)


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The structural OpenAPI v3 schema of `model`, with its CEL rules."""
    schema = model.model_json_schema(by_alias=True)
    return _flatten(schema, schema.get("$defs", {}), _rules_by_title(model))


def crd(kind: CustomResource) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    columns = [
        {"name": c.name, "type": c.type, "jsonPath": c.path} | ({"priority": c.priority} if c.priority else {})
        for c in kind.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": (kind.model.__doc__ or "").strip(),
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": _for_kubectl(structural_schema(kind.spec)),
                                "status": structural_schema(kind.status) | {"default": UNSEEN},
                            },
                        }
                    },
                }
            ],
        },
    }


def crd_yaml(kind: CustomResource) -> str:
    """The CRD as YAML, the same for the same models."""
    header = "# Generated by `partita crds` from partita_api. Do not edit.\n"
    return header + yaml.safe_dump(crd(kind), sort_keys=False, width=120, allow_unicode=True)


def _flatten(node: dict[str, Any], defs: dict[str, Any], rules: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    """One schema node without references, nullable unions and titles."""
    if "$ref" in node:
        target = defs[node["$ref"].rsplit("/", 1)[1]]
        return _flatten({**target, **{k: v for k, v in node.items() if k != "$ref"}}, defs, rules)
    if "anyOf" in node:
        (only,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        return _flatten({**only, **{k: v for k, v in node.items() if k != "anyOf"}}, defs, rules)
    out = {k: node[k] for k in KEPT_KEYWORDS if k in node and not (k == "default" and node[k] in (None, "", [], {}))}
    if isinstance(out.get("default"), dict):
        # A default must itself be valid, and no field is nullable. Empty values are what a field has without a default.
        out["default"] = _without_empty(out["default"])
        if not out["default"]:
            del out["default"]
    if "const" in node:
        out |= {"enum": [node["const"]]}
    if out.get("type") == "object":
        out |= _object_body(node, defs, rules)
    elif out.get("type") == "array":
        out["items"] = _flatten(node.get("items", {}), defs, rules)
    return out


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    """An object without values that are empty, or only have empty values."""
    pruned = {k: _without_empty(v) if isinstance(v, dict) else v for k, v in value.items()}
    return {k: v for k, v in pruned.items() if v not in (None, {}, [])}


def _for_kubectl(node: dict[str, Any], *, in_list: bool = False) -> dict[str, Any]:
    """A schema whose descriptions say the defaults, and whose lists have none.

    `kubectl explain` shows no defaults. `kubectl apply` compares a list as a whole: an item that the API server had
    completed would never equal the manifest's, so each apply would be a change. The models complete it instead.
    """
    out = {key: value for key, value in node.items() if not (in_list and key == "default")}
    if isinstance(default := node.get("default"), str | int):
        text = default if isinstance(default, str) else json.dumps(default)
        out["description"] = f"{node['description']} Default: {text}."
    if "properties" in node:
        out["properties"] = {name: _for_kubectl(field, in_list=in_list) for name, field in node["properties"].items()}
    if "items" in node:
        out["items"] = _for_kubectl(node["items"], in_list=True)
    return out


def _object_body(node: dict[str, Any], defs: dict[str, Any], rules: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    if "properties" in node:
        body: dict[str, Any] = {"properties": {k: _flatten(v, defs, rules) for k, v in node["properties"].items()}}
        if node.get("required"):
            body["required"] = node["required"]
        if node.get("title") in rules:
            body["x-kubernetes-validations"] = rules[node["title"]]
        return body
    # Kubernetes has no patterns for keys; the values' schema is what it can check.
    values = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), None)
    if isinstance(values, dict) and values:
        return {"additionalProperties": deepcopy(_flatten(values, defs, rules))}  # YAML marks what is shared
    return {"x-kubernetes-preserve-unknown-fields": True}


def _rules_by_title(model: type[BaseModel]) -> dict[str, list[dict[str, str]]]:
    """CEL rules of `model` and of every model that it refers to, by class name."""
    found: dict[str, list[dict[str, str]]] = {}
    pending: list[type[BaseModel]] = [model]
    seen: set[type[BaseModel]] = set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        own: tuple[Rule | TransitionRule, ...] = ()
        if issubclass(current, SpecModel):
            own = (*current.rules, *current.transition_rules)
        if written := [{"rule": rule.cel, "message": rule.message} for rule in own if rule.cel is not None]:
            found[current.__name__] = written
        for field in current.model_fields.values():
            pending.extend(_models_in(field.annotation))
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for arg in getattr(annotation, "__args__", ()) for m in _models_in(arg)]
