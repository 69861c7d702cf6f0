"""The kinds that Partita reads and writes, selectors of their objects, and documents of its own kinds as API models."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from kubernetes.aio.dynamic import Resource
from pydantic import BaseModel, ValidationError

from partita_api.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, InferenceSessionStatus
from partita_api.manifests import explain
from partita_api.meta import API_VERSION, SESSION_SPEC_ANNOTATION, ObjectMeta
from partita_api.pipelineplan import PipelinePlan

Document = Mapping[str, Any]
ALL_NAMESPACES: Final = ""
"""Stands for all of them in a list request."""
S = TypeVar("S", bound=BaseModel)
_LISTED_PROBLEMS: Final = 8
"""Most problems of a spec that a message lists."""
_LONGEST_PROBLEM: Final = 300
"""Characters of each. A problem names its field, and the keys of maps are of any length."""


def install_crds(flags: str = "") -> str:
    """The command that messages propose if a kind is missing; `flags` choose the cluster."""
    return f"partita crds | kubectl {f'{flags} ' if flags else ''}apply -f -"


def resource(api_version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    """A kind for the dynamic client, declared instead of discovered. The status subresource may be absent."""
    group, _, version = api_version.rpartition("/")
    return Resource(
        prefix="apis" if group else "api",
        group=group,
        api_version=version,
        kind=kind,
        name=plural,
        namespaced=namespaced,
        subresources={"status": {"kind": kind, "name": f"{plural}/status", "namespaced": namespaced}},
    )


PoolResource: Final = resource(API_VERSION, "GPUPool", "gpupools", namespaced=False)
SessionResource: Final = resource(API_VERSION, "InferenceSession", "inferencesessions")
PlanResource: Final = resource(API_VERSION, "PipelinePlan", "pipelineplans")

ConfigMapResource: Final = resource("v1", "ConfigMap", "configmaps")
DefinitionResource: Final = resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
DeviceClassResource: Final = resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False)
DisruptionBudgetResource: Final = resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
EndpointSliceResource: Final = resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
EventResource: Final = resource("v1", "Event", "events")
GatewayResource: Final = resource("gateway.networking.k8s.io/v1", "Gateway", "gateways")
GRPCRouteResource: Final = resource("gateway.networking.k8s.io/v1", "GRPCRoute", "grpcroutes")
HTTPRouteResource: Final = resource("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
IngressClassResource: Final = resource("networking.k8s.io/v1", "IngressClass", "ingressclasses", namespaced=False)
IngressResource: Final = resource("networking.k8s.io/v1", "Ingress", "ingresses")
JobResource: Final = resource("batch/v1", "Job", "jobs")
LeaseResource: Final = resource("coordination.k8s.io/v1", "Lease", "leases")
NamespaceResource: Final = resource("v1", "Namespace", "namespaces", namespaced=False)
NodeResource: Final = resource("v1", "Node", "nodes", namespaced=False)
PodResource: Final = resource("v1", "Pod", "pods")
RayClusterResource: Final = resource("ray.io/v1", "RayCluster", "rayclusters")
RayServiceResource: Final = resource("ray.io/v1", "RayService", "rayservices")
ResourceClaimTemplateResource: Final = resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
ResourceSliceResource: Final = resource("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False)
SecretResource: Final = resource("v1", "Secret", "secrets")
ServiceResource: Final = resource("v1", "Service", "services")

_NO_SPEC: Final = InferenceSessionSpec.model_validate(
    {
        "slo": {"latencyMs": 1},
        "rate": {"requestsPerSecond": 1},
        "modules": [{"name": "unreadable", "model": {"entrypoint": "unreadable:unreadable"}, "input": {"shape": [1]}}],
    }
)
"""Replaces an unusable spec of which no plan recorded an earlier version. Nothing is planned from it."""


def equal(labels: Mapping[str, str]) -> str:
    """Objects whose labels, or fields, have all of these values."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def exists(label: str) -> str:
    """Objects that have the label, with any value."""
    return label


def document(model: BaseModel) -> dict[str, Any]:
    """A model as a JSON document for the API server. Empty texts are left out unless required: they mean unset."""
    dumped = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    pruned: dict[str, Any] = _without_unset_texts(dumped, model)
    return pruned


def read_pool(raw: Document) -> tuple[GPUPool, str]:
    """A pool, and why its spec is unusable, else an empty text. A pool with an unusable spec has the default spec.

    The API server accepts what neither a schema nor a CEL rule can express.
    """
    spec, complaint = _spec(raw, GPUPoolSpec)
    return GPUPool(metadata=_metadata(raw), spec=spec or GPUPoolSpec(), status=_status(raw, GPUPoolStatus)), complaint


def read_session(raw: Document, recorded: str | None) -> tuple[InferenceSession, str]:
    """A session, and why its spec is unusable, else an empty text. `recorded` replaces an unusable spec."""
    spec, complaint = _spec(raw, InferenceSessionSpec)
    spec = spec or recorded_spec(recorded) or _NO_SPEC
    return InferenceSession(metadata=_metadata(raw), spec=spec, status=_status(raw, InferenceSessionStatus)), complaint


def read_plan(raw: Document) -> PipelinePlan | None:
    """A plan; None if it cannot be parsed, for example one of another version of Partita."""
    try:
        return PipelinePlan.model_validate(raw)
    except Exception:
        return None


def recorded_spec_json(plan: PipelinePlan) -> str | None:
    """The spec of the session that the plan was made from, as JSON."""
    return plan.metadata.annotations.get(SESSION_SPEC_ANNOTATION)


def recorded_spec(recorded: str | None) -> InferenceSessionSpec | None:
    """The spec that `recorded_spec_json` has given; None if there is none, or it cannot be used."""
    try:
        return InferenceSessionSpec.model_validate_json(recorded or "")
    except Exception:
        return None


def _without_unset_texts(dumped: Any, source: Any) -> Any:
    """`source` as JSON, without empty texts. Those of required fields stay, or the API server refuses the object."""
    if isinstance(dumped, dict):
        fields = type(source).model_fields if isinstance(source, BaseModel) else {}
        by_alias = {field.alias or name: name for name, field in fields.items()}
        required = {alias for alias, name in by_alias.items() if fields[name].is_required()}
        return {
            key: _without_unset_texts(item, getattr(source, by_alias[key]) if key in by_alias else None)
            for key, item in dumped.items()
            if item != "" or key in required
        }
    if isinstance(dumped, list):
        sources = source if isinstance(source, list | tuple) else [None] * len(dumped)
        return [_without_unset_texts(item, each) for item, each in zip(dumped, sources, strict=True)]
    return dumped


def _spec(raw: Document, model: type[S]) -> tuple[S | None, str]:
    """The spec, or why it is unusable. Whatever is in it, other objects are not affected."""
    try:
        return model.model_validate(raw.get("spec")), ""
    except ValidationError as error:
        return None, _complaint(error)
    except Exception as error:
        return None, f"Partita cannot read the spec, because of a {type(error).__name__}. Report it as a bug."


def _metadata(raw: Document) -> ObjectMeta:
    return ObjectMeta.model_validate(raw["metadata"])


def _status(raw: Document, model: type[S]) -> S:
    """The status; an empty one if it cannot be parsed. The next pass writes all of it again."""
    try:
        return model.model_validate(raw.get("status") or {})
    except Exception:
        return model()


def _complaint(error: ValidationError) -> str:
    lines = [line.strip()[:_LONGEST_PROBLEM] for line in explain(error).splitlines()]
    more = f" and {len(lines) - _LISTED_PROBLEMS} more" if len(lines) > _LISTED_PROBLEMS else ""
    return f"The spec is wrong: {'; '.join(lines[:_LISTED_PROBLEMS])}{more}"
