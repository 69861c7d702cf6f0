"""The session's HTTP interface as an OpenAPI 3.1 document, with the session's tensors. Pure."""

from typing import Final

from partita_api.session.module import TensorSpec
from partita_runtime.serving.protocol.cloud_events import STRUCTURED_TYPE
from partita_runtime.serving.protocol.event_stream import EVENT_STREAM
from partita_runtime.serving.protocol.images import IMAGE_TYPES
from partita_runtime.serving.protocol.inference import MAX_ID, MODEL_VERSION, server_metadata
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface, OutputTensor
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
from partita_runtime.serving.protocol.openapi.triton import triton_paths, triton_schemas
from partita_runtime.serving.protocol.openapi.v1 import v1_paths, v1_schemas
from partita_runtime.serving.protocol.variable_size import dimensions

_BYTES: Final[Json] = {"schema": {"type": "string", "format": "binary"}}
_EVENTS: Final[Json] = {
    "type": "string",
    "description": "For `Accept: text/event-stream`. Events `output`, each with one of the outputs as JSON, as soon as "
    "it is known; then `answer` with the rest of the answer and the names of its outputs, or `error` with the error "
    "and its HTTP status. An error before the first output is an answer with this status.",
}
_ELEMENTS: Final[Json] = {"type": "array", "description": "Elements in row-major order, flat or nested.", "items": {}}


def openapi(interface: Interface, base_url: str) -> Json:
    """The document for a session under `base_url`, such as /default/traffic."""
    model = f"/v2/models/{interface.model_name}"
    paths: dict[str, Json] = {
        "/v2": reading("Server metadata", ref("ServerMetadata")),
        "/v2/health/live": reading("Whether the frontend is up", object_of(live={"type": "boolean"})),
        "/v2/health/ready": _readiness(),
    }
    for path in (model, f"{model}/versions/{MODEL_VERSION}"):
        paths[path] = reading("Input and output tensors", ref("ModelMetadata"), 404, 503)
        paths[f"{path}/ready"] = _readiness(404)
        paths[f"{path}/infer"] = {"post": _infer(interface)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Partita session {interface.model_name}",
            "version": MODEL_VERSION,
            "description": "The Open Inference Protocol v2 with the binary tensor extension, and KServe's V1.",
        },
        "servers": [{"url": base_url or "/"}],
        "paths": triton_paths(interface) | v1_paths(interface) | paths,
        "components": {"schemas": _schemas(interface)},
    }


def _readiness(*errors: int) -> Json:
    content = {"application/json": {"schema": {"anyOf": [ref("Ready"), ref("Error")]}}}
    answers = {"200": answer("Every stage of the plan has a replica.", content)}
    answers["503"] = answer("A stage of the plan has no replica, or there is no plan yet.", content)
    return {"get": operation("Whether requests can be answered", answers, *errors)}


def _infer(interface: Interface) -> Json:
    content: Json = {
        "application/json": {"schema": ref("InferRequest")},
        "application/octet-stream": _BYTES,
        STRUCTURED_TYPE: {"schema": ref("CloudEvent")},
    }
    if len(interface.inputs) == 1 and interface.images:
        content |= dict.fromkeys(IMAGE_TYPES, _BYTES)
    header = {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "Length of the JSON in front of binary tensors.",
        "schema": {"type": "integer", "minimum": 0},
    }
    answers = {
        "application/json": {"schema": ref("InferResponse")},
        "application/octet-stream": _BYTES,
        EVENT_STREAM: {"schema": _EVENTS},
        STRUCTURED_TYPE: {"schema": ref("CloudEvent")},
    }
    described = operation("Inference", {"200": answer("The outputs", answers)}, *ERRORS)
    return {**described, "parameters": [header], "requestBody": {"required": True, "content": content}}


def _schemas(interface: Interface) -> dict[str, Json]:
    text, integer = {"type": "string"}, {"type": "integer"}
    binary = object_of(binary_data_size={"type": "integer", "minimum": 0, "description": "Bytes of the tensor."})
    inputs = [_input(name, interface) for name in interface.inputs]
    parameters = object_of(
        timeout={
            "type": "integer",
            "minimum": 0,
            "description": "Microseconds; may shorten the SLO, not lengthen it. 0 means unset.",
        },
        priority={"type": "integer", "minimum": 0, "description": "No effect: deadlines decide."},
        binary_data_output={"type": "boolean", "description": "Whether outputs are binary by default."},
    )
    request = object_of(
        ("inputs",) if inputs else (),
        id={"type": "string", "maxLength": MAX_ID},
        parameters=parameters,
        inputs={"type": "array", "items": {"oneOf": inputs} if inputs else {}, "minItems": len(inputs)},
        outputs={
            "type": "array",
            "description": "The requested outputs; by default all of them.",
            "items": object_of(("name",), name=text, parameters=object_of(binary_data={"type": "boolean"})),
        },
    )
    outputs = [_output(tensor) for tensor in interface.outputs]
    unknown = object_of(
        ("name", "datatype", "shape"), name=text, datatype=text, shape=array_of(integer), data=_ELEMENTS
    )
    response = object_of(
        ("model_name", "model_version", "outputs"),
        model_name={"const": interface.model_name},
        model_version={"const": MODEL_VERSION},
        id=text,
        outputs=array_of({"anyOf": [*outputs, unknown]}),
    )
    tensor = object_of(("name", "datatype", "shape"), name=text, datatype=text, shape=array_of(integer))
    return {
        "Error": object_of(("error",), error={"type": "string", "description": "What is wrong, and what is expected."}),
        "Ready": object_of(("ready",), ready={"type": "boolean"}),
        "BinaryData": binary,
        "ServerMetadata": object_of(tuple(server_metadata()), name=text, version=text, extensions=array_of(text)),
        "ModelMetadata": object_of(
            ("name", "versions", "platform", "inputs", "outputs"),
            name={"const": interface.model_name},
            versions=array_of(text),
            platform=text,
            inputs=array_of(tensor),
            outputs=array_of(tensor),
        ),
        "InferRequest": request,
        "InferResponse": response,
        **triton_schemas(),
        **v1_schemas(),
    }


def _input(name: str, interface: Interface) -> Json:
    spec = interface.inputs[name]
    datatypes = [spec.dtype.value, *(["BYTES"] if name in interface.images else [])]
    samples = {"type": "integer", "minimum": 1, "maximum": MAX_SAMPLES}
    return object_of(
        ("name", "datatype", "shape"),
        name={"const": name},
        datatype={"enum": datatypes},
        shape={
            "type": "array",
            "description": f"[n, {', '.join(dimensions(spec))}]; n is the number of samples.",
            "prefixItems": [samples, *(_size(spec, number) for number in range(len(spec.shape)))],
            "minItems": 1,
            "maxItems": 1 + len(spec.shape),
        },
        data=_ELEMENTS,
        parameters=ref("BinaryData"),
    )


def _size(spec: TensorSpec, dimension: int) -> Json:
    size = spec.shape[dimension]
    varies = dimension == spec.variable_dimension
    return {"type": "integer", "minimum": 1, "maximum": size} if varies else {"const": size}


def _output(tensor: OutputTensor) -> Json:
    rows = {"type": "integer", "minimum": 0}
    sizes = (rows if size < 0 else {"const": size} for size in tensor.shape[1:])
    return object_of(
        ("name", "datatype", "shape"),
        name={"const": tensor.name},
        datatype={"const": tensor.datatype},
        shape={"type": "array", "prefixItems": [rows, *sizes]},
        data=_ELEMENTS,
        parameters=ref("BinaryData"),
    )
