"""The part of the OpenAPI document that describes KServe's V1 protocol, and CloudEvents. Pure."""

from typing import Final

from partita_runtime.serving.protocol.cloud_events import STRUCTURED_TYPE, VERSION
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface
from partita_runtime.serving.protocol.openapi.parts import (
    ERRORS,
    Json,
    answer,
    array_of,
    object_of,
    operation,
    reading,
    ref,
)

_TEXT: Final[Json] = {"type": "string"}


def v1_paths(interface: Interface) -> dict[str, Json]:
    """The paths of the V1 protocol. Only sessions with one input have inference by it."""
    model = f"/v1/models/{interface.model_name}"
    ready = object_of(("name", "ready"), name=_TEXT, ready={"type": "boolean"})
    paths = {
        "/": reading("Whether the frontend is up", object_of(("status",), status={"const": "alive"})),
        "/v1/models": reading("The models", object_of(("models",), models=array_of(_TEXT))),
        model: reading("Whether the model is ready", ready, 404, 503),
    }
    if len(interface.inputs) == 1:
        paths[f"{model}:predict"] = {"post": _predict()}
    return paths


def v1_schemas() -> dict[str, Json]:
    """The schemas of requests and answers."""
    return {
        "PredictRequest": object_of(
            ("instances",),
            instances={
                "type": "array",
                "description": 'Samples as nested arrays; images also as {"b64": "<the file in base64>"}.',
                "minItems": 1,
                "maxItems": MAX_SAMPLES,
                "items": {},
            },
        ),
        "PredictResponse": object_of(
            ("predictions",),
            predictions={
                "description": "Rows of the only tensor; of several, rows by name.",
                "type": ["array", "object"],
            },
        ),
        "CloudEvent": object_of(
            ("specversion", "id", "source", "type"),
            specversion={"const": VERSION},
            id=_TEXT,
            source=_TEXT,
            type=_TEXT,
            data={"description": "A request or an answer, as without an event."},
            data_base64={"type": "string", "description": "The same in base64; also one image."},
        ),
    }


def _predict() -> Json:
    event: Json = {STRUCTURED_TYPE: {"schema": ref("CloudEvent")}}
    answers = {"200": answer("The outputs", {"application/json": {"schema": ref("PredictResponse")}, **event})}
    content = {"application/json": {"schema": ref("PredictRequest")}, **event}
    return {
        **operation("Inference by rows", answers, *ERRORS),
        "requestBody": {"required": True, "content": content},
    }
