"""The kinds that the API server serves, and what it accepts of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from partita_api.crd_schema import KINDS as DEFINED_KINDS
from partita_api.crd_schema import crd
from partita_api.manifests import MODELS, explain
from partita_api.meta import API_VERSION

Document = dict[str, Any]


@dataclass(frozen=True)
class ServedKind:
    """One kind of objects."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = False
    """Whether the status is a subresource: then other writes leave it as it is."""
    short: str = ""
    """The short name for kubectl."""
    problem: Callable[[Document, Document | None], str] = lambda _new, _old: ""
    """Why an object (with its predecessor, if it has one) is refused; empty if it is not."""


def _own_kind_problem(new: Document, old: Document | None) -> str:
    """What the API models and their rules for updates say."""
    model = MODELS[new["kind"]]
    try:
        found: Any = model.model_validate(new)
        before: Any = model.model_validate(old) if old is not None else None
    except ValidationError as error:
        return explain(error)
    if before is None:
        return ""
    return "; ".join(rule.message for rule in found.spec.transition_rules if not rule.allows(before.spec, found.spec))


def _own_kinds() -> list[ServedKind]:
    return [
        ServedKind(API_VERSION, kind.name, kind.plural, kind.scope == "Namespaced", True, kind.short, _own_kind_problem)
        for kind in DEFINED_KINDS
    ]


KINDS: Final[Mapping[tuple[str, str], ServedKind]] = {
    (kind.api_version, kind.plural): kind
    for kind in (
        *_own_kinds(),
        ServedKind("v1", "ConfigMap", "configmaps"),
        ServedKind("v1", "Event", "events"),
        ServedKind("v1", "Namespace", "namespaces", namespaced=False, has_status=True),
        ServedKind("v1", "Secret", "secrets"),
        ServedKind("v1", "Node", "nodes", namespaced=False, has_status=True),
        ServedKind("coordination.k8s.io/v1", "Lease", "leases"),
        ServedKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False, True),
    )
}
"""By apiVersion and plural."""


def initial_objects() -> list[Document]:
    """The objects that a cluster has from the beginning: a namespace, and the definitions of Partita's kinds."""
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    return [namespace, *({**crd(kind), "status": established} for kind in DEFINED_KINDS)]
