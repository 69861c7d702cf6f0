"""The session's HTTP interface as an OpenAPI 3.1 document, with the session's tensors. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from partita_runtime.serving.protocol.images import IMAGE_TYPES
from partita_runtime.serving.protocol.inference import MAX_ID, MODEL_VERSION, server_metadata
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface, OutputTensor

Json = dict[str, Any]

ERRORS: Final[Mapping[int, str]] = {
    400: "The request is malformed, or its tensors do not fit.",
    404: "Another model or version than the session's.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    500: "A model or function failed.",
    503: "There are too many requests, or replicas are missing; try again after Retry-After seconds.",
    504: "The request could not meet its deadline.",
}
"""The errors of an inference request, by HTTP status."""

_BYTES: Final[Json] = {"schema": {"type": "string", "format": "binary"}}
_ELEMENTS: Final[Json] = {"type": "array", "description": "Elements in row-major order, flat or nested.", "items": {}}


def openapi(interface: Interface, base_url: str) -> Json:
    """The document for a session under `base_url`, such as /default/traffic."""
    model = f"/v2/models/{interface.model_name}"
    paths: dict[str, Json] = {
        "/v2": _get("Server metadata", _ref("ServerMetadata")),
        "/v2/health/live": _get("Whether the frontend is up", _object(live={"type": "boolean"})),
        "/v2/health/ready": _readiness(),
    }
    for path in (model, f"{model}/versions/{MODEL_VERSION}"):
        paths[path] = _get("Input and output tensors", _ref("ModelMetadata"), 404, 503)
        paths[f"{path}/ready"] = _readiness(404)
        paths[f"{path}/infer"] = {"post": _infer(interface)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Partita session {interface.model_name}",
            "version": MODEL_VERSION,
            "description": "The Open Inference Protocol v2, with the binary tensor extension.",
        },
        "servers": [{"url": base_url or "/"}],
        "paths": paths,
        "components": {"schemas": _schemas(interface)},
    }


def _readiness(*errors: int) -> Json:
    content = {"application/json": {"schema": {"anyOf": [_ref("Ready"), _ref("Error")]}}}
    answers = {"200": _answer("Every stage of the plan has a replica.", content)}
    answers["503"] = _answer("A stage of the plan has no replica, or there is no plan yet.", content)
    return {"get": _operation("Whether requests can be answered", answers, *errors)}


def _infer(interface: Interface) -> Json:
    content: Json = {
        "application/json": {"schema": _ref("InferRequest")},
        "application/octet-stream": _BYTES,
    }
    if len(interface.inputs) == 1 and interface.images:
        content |= dict.fromkeys(IMAGE_TYPES, _BYTES)
    header = {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "Length of the JSON in front of binary tensors.",
        "schema": {"type": "integer", "minimum": 0},
    }
    answers = {"application/json": {"schema": _ref("InferResponse")}, "application/octet-stream": _BYTES}
    operation = _operation("Inference", {"200": _answer("The outputs", answers)}, *ERRORS)
    return {**operation, "parameters": [header], "requestBody": {"required": True, "content": content}}


def _schemas(interface: Interface) -> dict[str, Json]:
    text, integer = {"type": "string"}, {"type": "integer"}
    binary = _object(binary_data_size={"type": "integer", "minimum": 0, "description": "Bytes of the tensor."})
    inputs = [_input(name, interface) for name in interface.inputs]
    parameters = _object(
        timeout={
            "type": "integer",
            "minimum": 0,
            "description": "Microseconds; may shorten the SLO, not lengthen it. 0 means unset.",
        },
        priority={"type": "integer", "minimum": 0, "description": "No effect: deadlines decide."},
        binary_data_output={"type": "boolean", "description": "Whether outputs are binary by default."},
    )
    request = _object(
        ("inputs",) if inputs else (),
        id={"type": "string", "maxLength": MAX_ID},
        parameters=parameters,
        inputs={"type": "array", "items": {"oneOf": inputs} if inputs else {}, "minItems": len(inputs)},
        outputs={
            "type": "array",
            "description": "The requested outputs; by default all of them.",
            "items": _object(("name",), name=text, parameters=_object(binary_data={"type": "boolean"})),
        },
    )
    outputs = [_output(tensor) for tensor in interface.outputs]
    unknown = _object(("name", "datatype", "shape"), name=text, datatype=text, shape=_array(integer), data=_ELEMENTS)
    response = _object(
        ("model_name", "model_version", "outputs"),
        model_name={"const": interface.model_name},
        model_version={"const": MODEL_VERSION},
        id=text,
        outputs=_array({"anyOf": [*outputs, unknown]}),
    )
    tensor = _object(("name", "datatype", "shape"), name=text, datatype=text, shape=_array(integer))
    return {
        "Error": _object(("error",), error={"type": "string", "description": "What is wrong, and what is expected."}),
        "Ready": _object(("ready",), ready={"type": "boolean"}),
        "BinaryData": binary,
        "ServerMetadata": _object(tuple(server_metadata()), name=text, version=text, extensions=_array(text)),
        "ModelMetadata": _object(
            ("name", "versions", "platform", "inputs", "outputs"),
            name={"const": interface.model_name},
            versions=_array(text),
            platform=text,
            inputs=_array(tensor),
            outputs=_array(tensor),
        ),
        "InferRequest": request,
        "InferResponse": response,
    }


def _input(name: str, interface: Interface) -> Json:
    spec = interface.inputs[name]
    datatypes = [spec.dtype.value, *(["BYTES"] if name in interface.images else [])]
    samples = {"type": "integer", "minimum": 1, "maximum": MAX_SAMPLES}
    return _object(
        ("name", "datatype", "shape"),
        name={"const": name},
        datatype={"enum": datatypes},
        shape={
            "type": "array",
            "description": f"[n, {', '.join(map(str, spec.shape))}]; n is the number of samples.",
            "prefixItems": [samples, *({"const": size} for size in spec.shape)],
            "minItems": 1,
            "maxItems": 1 + len(spec.shape),
        },
        data=_ELEMENTS,
        parameters=_ref("BinaryData"),
    )


def _output(tensor: OutputTensor) -> Json:
    rows = {"type": "integer", "minimum": 0}
    return _object(
        ("name", "datatype", "shape"),
        name={"const": tensor.name},
        datatype={"const": tensor.datatype},
        shape={"type": "array", "prefixItems": [rows, *({"const": size} for size in tensor.shape[1:])]},
        data=_ELEMENTS,
        parameters=_ref("BinaryData"),
    )


def _get(summary: str, schema: Json, *errors: int) -> Json:
    answer = _answer(summary, {"application/json": {"schema": schema}})
    return {"get": _operation(summary, {"200": answer}, *errors)}


def _operation(summary: str, answers: Json, *errors: int) -> Json:
    refused = {"application/json": {"schema": _ref("Error")}}
    return {
        "summary": summary,
        "responses": answers | {str(status): _answer(ERRORS[status], refused) for status in errors},
    }


def _answer(description: str, content: Json) -> Json:
    return {"description": description, "content": content}


def _object(required: Iterable[str] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": [*required]} if required else schema


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}
