"""The part of the OpenAPI document that describes Triton's extensions. Pure."""

from typing import Final

from partita_runtime.serving.protocol.inference import MODEL_VERSION
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.openapi.parts import Json, answer, array_of, object_of, operation, reading, ref

_TEXT: Final[Json] = {"type": "string"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}


def triton_paths(interface: Interface) -> dict[str, Json]:
    """The paths of the model's configuration and statistics, and of the repository's index."""
    model = f"/v2/models/{interface.model_name}"
    paths = {"/v2/models/stats": reading("Statistics of all models", ref("ModelStatistics"), 503)}
    for path in (model, f"{model}/versions/{MODEL_VERSION}"):
        paths[f"{path}/config"] = reading("Configuration of the model", ref("ModelConfig"), 404, 503)
        paths[f"{path}/stats"] = reading("Statistics of the model", ref("ModelStatistics"), 404, 503)
    return paths | {"/v2/repository/index": {"post": _index()}}


def triton_schemas() -> dict[str, Json]:
    """The schemas of what these paths answer."""
    tensor = object_of(
        ("name", "data_type", "dims"),
        name=_TEXT,
        data_type={"type": "string", "pattern": "^TYPE_"},
        dims=array_of({"type": "integer"}),
    )
    duration = object_of(("count", "ns"), count=_COUNT, ns=_COUNT)
    durations = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    statistics = object_of(
        ("name", "version", "last_inference", "inference_count", "execution_count", "inference_stats"),
        name=_TEXT,
        version=_TEXT,
        last_inference={**_COUNT, "description": "Milliseconds since 1970."},
        inference_count={**_COUNT, "description": "Samples."},
        execution_count={**_COUNT, "description": "Requests."},
        inference_stats=object_of(durations, **dict.fromkeys(durations, duration)),
    )
    return {
        "ModelConfig": object_of(
            ("name", "platform", "max_batch_size", "input", "output"),
            name=_TEXT,
            platform=_TEXT,
            max_batch_size=_COUNT,
            input=array_of(tensor),
            output=array_of(tensor),
        ),
        "ModelStatistics": object_of(("model_stats",), model_stats=array_of(statistics)),
        "RepositoryIndex": array_of(
            object_of(("name", "version", "state", "reason"), name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)
        ),
    }


def _index() -> Json:
    content = {"application/json": {"schema": object_of(ready={"type": "boolean"})}}
    answers = {"200": answer("The models", {"application/json": {"schema": ref("RepositoryIndex")}})}
    return {**operation("Models of the repository", answers, 400, 413), "requestBody": {"content": content}}
