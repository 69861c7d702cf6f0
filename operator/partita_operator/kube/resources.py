"""Partita's custom resources for lightkube, and their documents as the API models."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from pydantic import BaseModel, ValidationError

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, InferenceSessionStatus
from partita_api.manifests import explain
from partita_api.meta import GROUP, SESSION_SPEC_ANNOTATION, VERSION, ObjectMeta
from partita_api.pipelineplan import PipelinePlan

PoolResource: Final = create_global_resource(GROUP, VERSION, "GPUPool", "gpupools")
SessionResource: Final = create_namespaced_resource(GROUP, VERSION, "InferenceSession", "inferencesessions")
PlanResource: Final = create_namespaced_resource(GROUP, VERSION, "PipelinePlan", "pipelineplans")

Document = Mapping[str, Any]
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
        return GPUPool.model_validate(raw), ""
    except ValidationError as error:
        status = _readable_status(raw, GPUPoolStatus)
        return GPUPool(metadata=ObjectMeta.model_validate(raw["metadata"]), status=status), _complaint(error)


def read_session(raw: Document, recorded: str | None) -> tuple[InferenceSession, str]:
    """A session, and why its spec cannot be used, if so; it then has the spec `recorded` with its plan in force."""
    try:
        return InferenceSession.model_validate(raw), ""
    except ValidationError as error:
        complaint = _complaint(error)
    try:
        spec = InferenceSessionSpec.model_validate_json(recorded or "")
    except ValidationError:
        spec = _NO_SPEC
    status = _readable_status(raw, InferenceSessionStatus)
    meta = ObjectMeta.model_validate(raw["metadata"])
    return InferenceSession(metadata=meta, spec=spec, status=status), complaint


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


def _readable_status(raw: Document, model: type[S]) -> S:
    try:
        return model.model_validate(raw.get("status") or {})
    except ValidationError:
        return model()


def _complaint(error: ValidationError) -> str:
    lines = [line.strip() for line in explain(error).splitlines()]
    return f"The spec is wrong: {'; '.join(lines)}"
