"""Partita's custom resources for lightkube, and their documents as the API models."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from pydantic import BaseModel, ValidationError

from partita_api.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, InferenceSessionStatus
from partita_api.manifests import explain
from partita_api.meta import GROUP, SESSION_SPEC_ANNOTATION, VERSION, ObjectMeta
from partita_api.pipelineplan import PipelinePlan

PoolResource: Final = create_global_resource(GROUP, VERSION, "GPUPool", "gpupools")
SessionResource: Final = create_namespaced_resource(GROUP, VERSION, "InferenceSession", "inferencesessions")
PlanResource: Final = create_namespaced_resource(GROUP, VERSION, "PipelinePlan", "pipelineplans")

Document = Mapping[str, Any]
ALL_NAMESPACES: Final = "*"
"""Stands for all of them in a list request."""
S = TypeVar("S", bound=BaseModel)

_NO_SPEC: Final = InferenceSessionSpec.model_validate(
    {
        "slo": {"latencyMs": 1},
        "rate": {"requestsPerSecond": 1},
        "modules": [{"name": "unreadable", "function": {"entrypoint": "unreadable:unreadable"}}],
    }
)
"""Stands for a spec that cannot be used where no plan recorded an earlier one. Nothing is planned from it."""


def document(model: BaseModel) -> dict[str, Any]:
    """A model as a JSON document for the API server.

    Empty texts are left out: they say nothing, and API servers of 1.20 built with a recent Go take them for null.
    """
    pruned: dict[str, Any] = _without_empty_texts(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    return pruned


def read_pool(raw: Document) -> tuple[GPUPool, str]:
    """A pool, and why its spec cannot be used, if so; it then has the default spec.

    The API server lets pass what a schema cannot say, and older ones what CEL rules say.
    """
    try:
        spec, complaint = GPUPoolSpec.model_validate(raw.get("spec")), ""
    except ValidationError as error:
        spec, complaint = GPUPoolSpec(), _complaint(error)
    return GPUPool(metadata=_metadata(raw), spec=spec, status=_status(raw, GPUPoolStatus)), complaint


def read_session(raw: Document, recorded: str | None) -> tuple[InferenceSession, str]:
    """A session, and why its spec cannot be used, if so; it then has the spec `recorded` with its plan in force."""
    try:
        spec, complaint = InferenceSessionSpec.model_validate(raw.get("spec")), ""
    except ValidationError as error:
        spec, complaint = _recorded(recorded), _complaint(error)
    return InferenceSession(metadata=_metadata(raw), spec=spec, status=_status(raw, InferenceSessionStatus)), complaint


def read_plan(raw: Document) -> PipelinePlan | None:
    """A plan; None for one that cannot be read, such as one of another version of Partita."""
    try:
        return PipelinePlan.model_validate(raw)
    except ValidationError:
        return None


def recorded_spec(plan: PipelinePlan) -> str | None:
    """The session's spec that a plan was made from, as JSON."""
    return plan.metadata.annotations.get(SESSION_SPEC_ANNOTATION)


def _without_empty_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty_texts(item) for key, item in value.items() if item != ""}
    return [_without_empty_texts(item) for item in value] if isinstance(value, list) else value


def _recorded(spec: str | None) -> InferenceSessionSpec:
    try:
        return InferenceSessionSpec.model_validate_json(spec or "")
    except ValidationError:
        return _NO_SPEC


def _metadata(raw: Document) -> ObjectMeta:
    return ObjectMeta.model_validate(raw["metadata"])


def _status(raw: Document, model: type[S]) -> S:
    """The status; an empty one if another version of Partita wrote it, since all of it can be found out again."""
    try:
        return model.model_validate(raw.get("status") or {})
    except ValidationError:
        return model()


def _complaint(error: ValidationError) -> str:
    lines = [line.strip() for line in explain(error).splitlines()]
    return f"The spec is wrong: {'; '.join(lines)}"
