"""A session from the side of gRPC clients: over real sockets, with tritonclient."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from google.protobuf import descriptor_pb2
from tests.runtime.serving.in_process.stand import MONITORING, LocalDirectory, Stand, stand, until
from tests.runtime.serving.plans import Application, application, detector_with_crops
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

from partita_api.session.module import DType, TensorSpec
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_codec import decode_request
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

PLAIN = application("plain").model("only", input=(2, 3), outputs=((4,),))


@contextlib.asynccontextmanager
async def grpc_stand(
    app: Application, settings: FrontendSettings | None = None
) -> AsyncIterator[tuple[Stand, triton.InferenceServerClient]]:
    async with stand(app, settings or FrontendSettings(function_processes=1)) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with triton.InferenceServerClient(running.session.addresses.grpc) as client:
            yield running, client
        await endpoint.close()


def given(array: np.ndarray, name: str = "input", datatype: str = "FP32") -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def test_messages_equal_those_of_clients() -> None:
    """Every field has the same number, type and label as in Triton's copy of the specification."""

    def fields(message: Any) -> set[tuple[str, int, int, int, str]]:
        return {(f.name, f.number, f.type, f.label, f.type_name) for f in message.field}

    def messages(descriptor: Any) -> dict[str, Any]:
        file = descriptor_pb2.FileDescriptorProto()
        descriptor.CopyToProto(file)
        return {m.name: m for m in file.message_type}

    ours = messages(MESSAGES["ServerLiveRequest"].DESCRIPTOR.file)
    theirs = messages(service_pb2.DESCRIPTOR) | messages(model_config_pb2.DESCRIPTOR)
    assert ours
    for name, message in ours.items():
        assert fields(message) <= fields(theirs[name]), name
        nested = {m.name: m for m in theirs[name].nested_type}
        for inner in message.nested_type:
            assert fields(inner) <= fields(nested[inner.name]), (name, inner.name)
    kinds = {
        value.name: value.number
        for value in MESSAGES["ModelInput"].DESCRIPTOR.file.enum_types_by_name["DataType"].values
    }
    assert kinds == dict(model_config_pb2.DataType.items())


async def test_tritonclient_reads_the_metadata() -> None:
    async with grpc_stand(detector_with_crops()) as (_, client):
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("traffic")
        assert await client.is_model_ready("traffic", "1")
        assert not await client.is_model_ready("other")
        assert (await client.get_server_metadata()).name == "partita"
        (tensor,) = (await client.get_model_metadata("traffic")).inputs
        assert (tensor.name, tensor.datatype, [*tensor.shape]) == ("input", "FP32", [-1, 3, 4])


async def test_nothing_is_ready_without_replicas() -> None:
    async with grpc_stand(PLAIN) as (running, client):
        await running.kill("plan-1-only-0-0")
        await until(lambda: not running.session.ready, "the replica is missed")
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("plain")


async def test_tritonclient_infers() -> None:
    samples = np.zeros((3, 3, 4), np.float32)
    samples[:, 0, 0] = (2, 0, 1)
    async with grpc_stand(detector_with_crops()) as (running, client):
        outputs = [triton.InferRequestedOutput("classifier.index")]
        some = await client.infer("traffic", [given(samples)], outputs=outputs, request_id="seven")
        assert some.get_response().id == "seven"
        np.testing.assert_array_equal(some.as_numpy("classifier.index"), [0, 0, 2])
        assert some.as_numpy("classifier") is None
        everything = await client.infer("traffic", [given(samples)], "1", priority=3)
        assert everything.as_numpy("classifier").shape == (3, 5)
        signals = (await running.client.get("/partita/signals", headers=MONITORING)).json()
        assert signals["outcomes"] == {"in_time": 6}
        assert signals["grpcAddress"] == running.session.addresses.grpc


async def test_a_timeout_and_a_clients_deadline_shorten_the_slo() -> None:
    async with grpc_stand(application("strict").model("only", beta_micros=200_000)) as (running, client):
        tensor = given(np.zeros((1, 2, 2), np.float32))
        for patience in ({"timeout": 50_000}, {"client_timeout": 0.1}):
            with pytest.raises(InferenceServerException) as refused:
                await client.infer("strict", [tensor], **patience)
            assert refused.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        await client.infer("strict", [tensor], timeout=600_000_000)
        assert running.session.serving is not None
        await until(lambda: running.session.serving.idle, "all have ended")


async def test_errors_have_grpcs_status_and_a_message() -> None:
    broken = application("broken").model("detector").function("f", "broken").edge("detector", "f")
    square = given(np.zeros((1, 2, 2), np.float32))
    async with grpc_stand(broken, FrontendSettings(function_processes=1, max_request_bytes=1000)) as (_, client):
        cases = [
            ("other", "", square, "NOT_FOUND", "the model is 'broken'"),
            ("broken", "9", square, "NOT_FOUND", "no version '9'"),
            ("broken", "", given(np.zeros((1, 3), np.float32)), "INVALID_ARGUMENT", r"must be FP32 [n, 2, 2]"),
            ("broken", "", given(np.full((1, 2, 2), np.nan, np.float32)), "INVALID_ARGUMENT", "not a number"),
            ("broken", "", given(np.zeros((500, 2, 2), np.float32)), "RESOURCE_EXHAUSTED", "larger than max"),
            ("broken", "", square, "INTERNAL", "no such camera"),
        ]
        for model, version, tensor, want_status, want_message in cases:
            with pytest.raises(InferenceServerException) as refused:
                await client.infer(model, [tensor], version)
            assert refused.value.status() == f"StatusCode.{want_status}"
            assert want_message in refused.value.message()


async def test_before_the_first_plan_clients_are_asked_to_retry() -> None:
    session = Session("default/early", FrontendSettings(), LocalDirectory())
    endpoint = grpc_endpoint(session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: session.addresses.grpc, "gRPC is listened for")
    async with grpc.aio.insecure_channel(str(session.addresses.grpc)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"")
        with pytest.raises(grpc.aio.AioRpcError, match="no plan is being served yet") as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ("retry-after", "1") in [*(await call.trailing_metadata())]
    await endpoint.close()


async def test_the_work_of_a_client_that_leaves_is_cancelled() -> None:
    async with grpc_stand(application("slow").model("only", beta_micros=2_000_000)) as (running, client):
        asking = asyncio.create_task(client.infer("slow", [given(np.zeros((1, 2, 2), np.float32))]))
        await until(lambda: running.session.meter.arrived, "the request is there")
        asking.cancel()
        await until(lambda: running.session.meter.outcomes["cancelled"], "it counts as cancelled")
        assert running.session.serving is not None
        assert running.session.serving.idle


def message(**fields: Any) -> Any:
    """A request for PLAIN, by default with typed contents."""
    made = MESSAGES["ModelInferRequest"](model_name="plain")
    tensor = made.inputs.add(name="input", datatype="FP32", shape=[1, 2, 3])
    if "raw" in fields:
        made.raw_input_contents.extend(fields["raw"])
    if "contents" in fields or "raw" not in fields:
        tensor.contents.fp32_contents.extend(fields.get("contents", range(6)))
    for name, value in fields.get("parameters", {}).items():
        made.parameters[name].CopyFrom(value)
    return made


def parameter(**choice: Any) -> Any:
    return MESSAGES["InferParameter"](**choice)


INTERFACE = Interface("plain", PLAIN.session.spec, PLAIN.epoch.outputs)
SIX = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("made", "want_timeout"),
    [
        pytest.param(message(), None, id="typed contents"),
        pytest.param(message(raw=[SIX.tobytes()]), None, id="raw contents"),
    ],
)
def test_requests_are_read(made: Any, want_timeout: int | None) -> None:
    request = decode_request(made, INTERFACE)
    np.testing.assert_array_equal(request.inputs["input"], SIX.reshape(1, 2, 3))
    assert request.timeout_micros == want_timeout


@pytest.mark.parametrize(
    ("made", "want_message"),
    [
        pytest.param(message(contents=range(5)), "not 5", id="too few elements"),
        pytest.param(message(raw=[bytes(23)]), "is 24 bytes, but 23 are there", id="too few bytes"),
        pytest.param(message(raw=[bytes(24)] * 2), "one element for each of 1 inputs, not 2", id="too many buffers"),
        pytest.param(message(raw=[bytes(24)], contents=[1]), "has both contents and raw", id="both kinds of contents"),
        pytest.param(MESSAGES["ModelInferRequest"](), "the inputs must be 'input', not none", id="no inputs"),
        pytest.param(MESSAGES["ModelInferRequest"](id="x" * 1025), "longer than 1024", id="long id"),
    ],
)
def test_unreadable_requests_are_explained(made: Any, want_message: str) -> None:
    with pytest.raises(RequestError) as refused:
        decode_request(made, INTERFACE)
    assert (refused.value.status, want_message in str(refused.value)) == (400, True), str(refused.value)


@pytest.mark.parametrize(
    ("dtype", "contents", "values", "want_problem"),
    [
        pytest.param(DType.INT64, "int64_contents", [-(2**40), 1], "", id="INT64"),
        pytest.param(DType.INT32, "int_contents", [-5, 1], "", id="INT32"),
        pytest.param(DType.UINT8, "uint_contents", [0, 255], "", id="UINT8"),
        pytest.param(DType.UINT8, "uint_contents", [0, 256], "UINT8 cannot hold", id="more than UINT8"),
        pytest.param(DType.INT16, "int_contents", [-(2**15), 2**15 - 1], "", id="INT16"),
        pytest.param(DType.INT8, "int_contents", [-129, 0], "INT8 cannot hold", id="less than INT8"),
        pytest.param(DType.UINT16, "uint_contents", [0, 2**16 - 1], "", id="UINT16"),
        pytest.param(DType.UINT32, "uint_contents", [0, 2**32 - 1], "", id="UINT32"),
        pytest.param(DType.UINT64, "uint64_contents", [1, 2**64 - 1], "", id="UINT64"),
        pytest.param(DType.FP64, "fp64_contents", [1e300, -0.1], "", id="FP64"),
        pytest.param(DType.BOOL, "bool_contents", [True, False], "", id="BOOL"),
        pytest.param(DType.BYTES, "bytes_contents", [b"\xff\0", b""], "", id="BYTES"),
        pytest.param(DType.BYTES, "bytes_contents", [b"one"], "needs 2 elements", id="too few BYTES"),
        pytest.param(DType.FP16, "fp32_contents", [0, 1], "send raw_input_contents", id="FP16"),
    ],
)
def test_typed_contents_of_every_element_type(
    dtype: DType, contents: str, values: list[Any], want_problem: str
) -> None:
    functions = application("plain").function("only", "echo", input=TensorSpec(shape=(2,), dtype=dtype)).functions
    interface = Interface("plain", PLAIN.session.spec.model_copy(update={"modules": functions}), {})
    made = MESSAGES["ModelInferRequest"]()
    tensor = made.inputs.add(name="input", datatype=dtype.value, shape=[1, 2])
    getattr(tensor.contents, contents).extend(values)
    if want_problem:
        with pytest.raises(RequestError, match=want_problem):
            decode_request(made, interface)
    else:
        assert decode_request(made, interface).inputs["input"].tolist() == [values]
