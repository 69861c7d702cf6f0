"""The page on the Open Inference Protocol: each row of its tables holds for a session in this process."""

import gzip
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tests.architecture.sources import ROOT
from tests.runtime.serving.in_process.stand import Stand, on_its_own_port, stand, until
from tests.runtime.serving.plans import application
from tritonclient.grpc import service_pb2

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol import grpc_codec, oip
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.protocol.interface import Interface

PAGE: Final = ROOT / "docs/reference/oip.md"
APP: Final = application("traffic").model("only", input=(2, 3), outputs=((4,),))
SERVICE: Final = "inference.GRPCInferenceService"
INPUT: Final = {"name": "input", "datatype": "FP32", "shape": [1, 2, 3]}
SHARED: Final = {"shared_memory_region": "a", "shared_memory_byte_size": 24}


def table(section: str) -> list[list[str]]:
    """The rows of the table in a section."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    _head, _line, *rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.fixture
async def traffic() -> AsyncIterator[Stand]:
    async with stand(APP, way=on_its_own_port) as running:
        yield running


def body(**parts: Any) -> dict[str, Any]:
    return {"inputs": [{**INPUT, "data": [0] * 6}], **parts}


async def test_endpoints_of_http(traffic: Stand) -> None:
    found = {}
    for request, *_ in table("HTTP"):
        method, path = request.strip("`").split()
        content = {"json": body()} if path.endswith("/infer") else {}
        found[request] = str((await traffic.client.request(method, f"/{path}", **content)).status_code)

    assert found == {request: status for request, _, status, _ in table("HTTP")}
    assert {support for _, support, status, _ in table("HTTP") if status == "200"} == {"yes"}
    document = (await traffic.client.get("/openapi.json")).json()
    paths = {path.removeprefix("/") for path in document["paths"] if path.startswith("/v2")}
    assert paths == {request.strip("`").split()[1] for request, support, *_ in table("HTTP") if support == "yes"}


async def test_methods_of_grpc(traffic: Stand) -> None:
    """Triton's own description of the service says which methods there are."""
    endpoint = grpc_endpoint(traffic.session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: traffic.session.addresses.grpc, "gRPC is listened for")
    infer = MESSAGES["ModelInferRequest"](model_name="traffic", raw_input_contents=[bytes(24)])
    infer.inputs.add(**INPUT)
    named = MESSAGES["ModelMetadataRequest"](name="traffic").SerializeToString()
    messages: dict[str, bytes] = {
        "ModelInfer": infer.SerializeToString(),
        **dict.fromkeys(("ModelMetadata", "ModelConfig", "ModelStatistics"), named),
    }
    documented = {method: code for methods, _, code, *_ in table("gRPC") for method in re.findall(r"\w+", methods)}
    found = {}
    async with grpc.aio.insecure_channel(str(traffic.session.addresses.grpc)) as channel:
        for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
            found[method.name] = await code(channel, f"/{SERVICE}/{method.name}", messages.get(method.name, b""))
        assert await code(channel, "/grpc.health.v1.Health/Check", b"") == "UNIMPLEMENTED"
    assert found == documented
    async with triton.InferenceServerClient(traffic.session.addresses.grpc) as client:
        given = triton.InferInput("input", [1, 2, 3], "FP32")
        given.set_data_from_numpy(np.zeros((1, 2, 3), np.float32))
        assert await client.infer("traffic", [given], compression_algorithm="gzip")
    await endpoint.close()


async def code(channel: grpc.aio.Channel, method: str, message: bytes) -> str:
    """The name of the status code of a call."""
    call = channel.unary_unary(method)(message)
    return (await call.code()).name


def output(**parameters: Any) -> dict[str, Any]:
    return body(outputs=[{"name": "only", "parameters": parameters}])


def parameters(**given: Any) -> dict[str, Any]:
    return body(parameters=given)


PARTS: Final[Mapping[str, Any]] = {
    "`binary_data_size` and binary inputs": {"inputs": [{**INPUT, "parameters": {"binary_data_size": 24}}]},
    "`binary_data`, `binary_data_output`": {**output(binary_data=True), "parameters": {"binary_data_output": True}},
    "`id`": body(id="seven"),
    "`outputs`": body(outputs=[{"name": "only"}]),
    "parameter `timeout`": parameters(timeout=1),
    "parameter `priority`": parameters(priority=3),
    "parameters `sequence_id`, `sequence_start`, `sequence_end`": parameters(
        sequence_id=5, sequence_start=True, sequence_end=True
    ),
    "any other parameter": parameters(camera="north"),
    "output parameter `classification`": output(classification=1),
    "output parameter `shared_memory_region`": output(**SHARED),
    "input parameter `shared_memory_region`": {"inputs": [{**INPUT, "parameters": SHARED}]},
    "`BYTES` for an input of numbers without `image`": {
        "inputs": [{"name": "input", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}]
    },
    "header `Content-Encoding: gzip`": body(),
    "header `Accept-Encoding: gzip`": body(),
    "header `Accept: text/event-stream`": body(),
}
"""A request for each row of "Parts of a request"."""


async def test_parts_of_a_request(traffic: Stand) -> None:
    found = {}
    for part, request in PARTS.items():
        content, headers = json.dumps(request).encode(), {"accept-encoding": "identity"}
        size = sum(given.get("parameters", {}).get("binary_data_size", 0) for given in request["inputs"])
        if size:
            headers["inference-header-content-length"] = str(len(content))
        content += bytes(size)
        if part.startswith("header"):
            name, value = part.removeprefix("header ").strip("`").split(": ")
            headers[name.lower()] = value
            content = gzip.compress(content) if name == "Content-Encoding" else content
        answer = await traffic.client.post("/v2/models/traffic/infer", content=content, headers=headers)
        found[part] = str(answer.status_code)
        assert "content-encoding" not in answer.headers
    serving = traffic.session.serving
    assert serving is not None
    await until(lambda: serving.idle, "all have ended")

    assert found == {part: status for part, _, status, *_ in table("Parts of a request")}


FIELDS: Final = {
    **dict.fromkeys(("INT32", "INT16", "INT8"), "int_contents"),
    **dict.fromkeys(("UINT32", "UINT16", "UINT8"), "uint_contents"),
    **{name: f"{name.lower()}_contents" for name in ("FP64", "INT64", "UINT64", "BOOL", "BYTES")},
}
"""The fields of gRPC's typed contents, apart from that of FP32."""


def reads(datatype: str, way: str) -> str:
    """Whether an input of this element type is read, where a session can declare it."""
    declared = DType(datatype) if datatype in {*DType} else DType.FP32
    modules = application("traffic").function("only", "echo", input=TensorSpec(shape=(2,), dtype=declared)).functions
    interface = Interface("traffic", APP.session.spec.model_copy(update={"modules": modules}), {})
    tensor: dict[str, Any] = {"name": "input", "datatype": datatype, "shape": [1, 2]}
    raw = bytes(2 * (NUMPY_DTYPES[declared].itemsize if declared in NUMPY_DTYPES else 4))
    elements = {"BYTES": ["", ""], "BOOL": [False, False]}.get(datatype, [0, 0])
    message = MESSAGES["ModelInferRequest"](model_name="traffic")
    message.inputs.add(**tensor)
    try:
        match way:
            case "json":
                oip.decode_request(json.dumps({"inputs": [{**tensor, "data": elements}]}).encode(), None, interface)
            case "raw":
                message.raw_input_contents.append(raw)
                grpc_codec.decode_request(message, interface)
            case _:
                contents = message.inputs[0].contents
                getattr(contents, FIELDS.get(datatype, "fp32_contents")).extend(
                    [b"", b""] if datatype == "BYTES" else elements
                )
                grpc_codec.decode_request(message, interface)
    except RequestError as error:
        return {400: "no"}.get(error.status, str(error.status))
    return "yes"


def test_element_types() -> None:
    documented = {datatype: cells for types, *cells in table("Element types") for datatype in types.split(", ")}
    outputs = {*DType}

    assert documented.keys() == outputs | {"BF16"}
    for datatype, cells in documented.items():
        inputs = [reads(datatype, way) for way in ("json", "raw", "typed")]
        assert cells == [*inputs, "yes" if datatype in outputs else "no"], datatype


def test_the_page_says_yes_partly_or_no() -> None:
    rows = [*table("HTTP"), *table("gRPC"), *table("Parts of a request")]

    assert {support for _, support, *_ in rows} == {"yes", "partly", "no"}
