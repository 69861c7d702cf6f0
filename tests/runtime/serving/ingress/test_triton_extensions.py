"""What Triton's clients ask beyond the Open Inference Protocol: every call of tritonclient, by HTTP and gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tests.runtime.serving.in_process.stand import (
    MONITORING,
    WAYS,
    LocalDirectory,
    Stand,
    Way,
    behind_uvicorn,
    on_its_own_port,
    post,
    stand,
    until,
)
from tests.runtime.serving.plans import Application, application, detector_with_crops
from tritonclient.utils import InferenceServerException

from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

TRAFFIC: Final = detector_with_crops()
HTTP, GRPC = "http", "grpc"


class Client:
    """A client of tritonclient. It blocks, and it is used in one thread only, as gevent demands."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._client = self._thread.submit(made)

    async def use(self, use: Callable[[Any], Any]) -> Any:
        """What `use` returns for the client."""
        return await asyncio.wrap_future(self._thread.submit(lambda: use(self._client.result())))

    async def asked(self, method: str, *args: Any) -> Any:
        """The answer to a call as JSON."""

        def call(client: Any) -> Any:
            options = {"as_json": True} if isinstance(client, triton_grpc.InferenceServerClient) else {}
            return getattr(client, method)(*args, **options)

        return await self.use(call)

    async def close(self) -> None:
        """Disconnect."""
        await self.use(lambda client: client.close())
        self._thread.shutdown()


@contextlib.asynccontextmanager
async def clients(app: Application, way: Way = on_its_own_port) -> AsyncIterator[tuple[Stand, Mapping[str, Client]]]:
    """A session, and a client for each protocol."""
    async with stand(app, way=way) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        made = {
            HTTP: Client(lambda: triton_http.InferenceServerClient(running.url)),
            GRPC: Client(lambda: triton_grpc.InferenceServerClient(running.session.addresses.grpc)),
        }
        try:
            yield running, made
        finally:
            for client in made.values():
                await client.close()
            await endpoint.close()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_configuration(way: Way) -> None:
    async with clients(TRAFFIC, way) as (_, made):
        by_http = await made[HTTP].asked("get_model_config", "traffic", "1")
        by_grpc = (await made[GRPC].asked("get_model_config", "traffic", "1"))["config"]
    assert by_http["max_batch_size"] == by_grpc["max_batch_size"] == 64
    assert (by_http["name"], by_http["platform"]) == (by_grpc["name"], by_grpc["platform"]) == ("traffic", "partita")
    assert by_http["input"] == [{"name": "input", "data_type": "TYPE_FP32", "dims": [3, 4]}]
    assert by_http["output"] == [
        {"name": "classifier", "data_type": "TYPE_FP32", "dims": [5]},
        {"name": "classifier.index", "data_type": "TYPE_INT64", "dims": []},
    ]
    assert by_grpc["input"] == [{"name": "input", "data_type": "TYPE_FP32", "dims": ["3", "4"]}]
    assert [(output["name"], output["data_type"]) for output in by_grpc["output"]] == [
        ("classifier", "TYPE_FP32"),
        ("classifier.index", "TYPE_INT64"),
    ]
    assert "dynamic_batching" in by_http
    assert "dynamic_batching" in by_grpc


async def test_the_statistics_are_those_that_were_measured() -> None:
    async with clients(application("plain").model("only", beta_micros=20_000)) as (running, made):
        (before,) = (await made[HTTP].asked("get_inference_statistics", "plain"))["model_stats"]
        assert (before["inference_count"], before["last_inference"]) == (0, 0)
        for samples in (1, 3):
            assert (await post(running, samples))[0] == 200
        (by_http,) = (await made[HTTP].asked("get_inference_statistics", "plain", "1"))["model_stats"]
        (by_grpc,) = (await made[GRPC].asked("get_inference_statistics"))["model_stats"]
        (all_models,) = (await made[HTTP].asked("get_inference_statistics"))["model_stats"]
        meter = running.session.meter
    assert (by_http["inference_count"], by_http["execution_count"]) == (4, 2)
    success = by_http["inference_stats"]["success"]
    assert success == {"count": 2, "ns": 1000 * sum(meter.request_micros.values())}
    assert success["ns"] >= 2 * 20_000_000
    assert by_http["inference_stats"]["fail"] == {"count": 0, "ns": 0}
    assert by_http["inference_stats"]["queue"] == {"count": 2, "ns": 0}
    assert by_http["inference_stats"]["compute_infer"] == {"count": 0, "ns": 0}
    assert by_http["last_inference"] > 0
    assert all_models["inference_stats"] == by_http["inference_stats"]
    assert by_grpc["inference_count"] == "4"
    assert by_grpc["inference_stats"]["success"] == {"count": "2", "ns": str(success["ns"])}


async def test_failed_requests_are_no_success() -> None:
    app = application("plain").model("only").function("f", "broken").edge("only", "f")
    async with clients(app) as (running, made):
        assert (await post(running))[0] == 500
        (stats,) = (await made[HTTP].asked("get_inference_statistics", "plain"))["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (0, 0)
        assert stats["inference_stats"]["fail"] == {
            "count": 1,
            "ns": 1000 * sum(running.session.meter.request_micros.values()),
        }


async def test_the_index_says_whether_the_session_is_ready() -> None:
    async with clients(application("plain").model("only")) as (running, made):
        ready = {"name": "plain", "version": "1", "state": "READY"}
        assert await made[HTTP].asked("get_model_repository_index") == [{**ready, "reason": ""}]
        assert (await made[GRPC].asked("get_model_repository_index"))["models"] == [ready]
        (replica,) = running.workers
        await running.kill(replica)
        await until(lambda: not running.session.ready, "the replica is missed")
        (model,) = await made[HTTP].asked("get_model_repository_index")
        assert (model["state"], model["reason"]) == ("UNAVAILABLE", "a stage of the plan has no replica")
        answer = await running.client.post("/v2/repository/index", json={"ready": True})
        assert answer.json() == []
        assert not await made[HTTP].use(lambda client: client.is_model_ready("plain", "1"))


async def test_before_the_first_plan_the_index_says_that_the_model_is_unavailable() -> None:
    session = Session("default/early", FrontendSettings(), LocalDirectory())
    async with on_its_own_port(session) as host:
        client = Client(lambda: triton_http.InferenceServerClient(host))
        (model,) = await client.asked("get_model_repository_index")
        assert (model["name"], model["state"]) == ("early", "UNAVAILABLE")
        with pytest.raises(InferenceServerException, match="no plan is being served yet"):
            await client.asked("get_model_config", "early")
        await client.close()


async def test_a_session_that_is_named_like_the_path_of_all_statistics() -> None:
    async with clients(application("stats").model("only")) as (_, made):
        assert (await made[HTTP].asked("get_model_metadata", "stats"))["name"] == "stats"
        assert (await made[HTTP].asked("get_inference_statistics", "stats"))["model_stats"][0]["name"] == "stats"


@pytest.mark.parametrize(
    ("want_message", "method", "args"),
    [
        pytest.param("kubectl apply", "load_model", ("traffic",), id="load"),
        pytest.param("kubectl apply", "unload_model", ("traffic",), id="unload"),
        pytest.param("shared memory", "get_system_shared_memory_status", (), id="system status"),
        pytest.param("shared memory", "get_system_shared_memory_status", ("a",), id="system region"),
        pytest.param("shared memory", "register_system_shared_memory", ("a", "/a", 64), id="system register"),
        pytest.param("shared memory", "unregister_system_shared_memory", ("a",), id="system unregister"),
        pytest.param("shared memory", "get_cuda_shared_memory_status", (), id="CUDA status"),
        pytest.param("shared memory", "register_cuda_shared_memory", ("a", b"aGFuZGxl", 0, 64), id="CUDA register"),
        pytest.param("shared memory", "unregister_cuda_shared_memory", (), id="CUDA unregister"),
        pytest.param("setting of the platform", "get_trace_settings", (), id="trace settings"),
        pytest.param("setting of the platform", "get_trace_settings", ("traffic",), id="trace settings of a model"),
        pytest.param("setting of the platform", "update_trace_settings", ("traffic", {}), id="update of trace"),
        pytest.param("setting of the platform", "get_log_settings", (), id="log settings"),
        pytest.param("setting of the platform", "update_log_settings", ({},), id="update of log"),
    ],
)
async def test_other_extensions_are_refused_in_words(want_message: str, method: str, args: tuple[Any, ...]) -> None:
    async with clients(TRAFFIC) as (_, made):
        for protocol, want_status in ((HTTP, "400"), (GRPC, "StatusCode.UNIMPLEMENTED")):
            with pytest.raises(InferenceServerException, match=want_message) as refused:
                await made[protocol].use(lambda client: getattr(client, method)(*args))
            assert refused.value.status() == want_status


CALLS: Final[Mapping[str, Callable[[Any, dict[str, str]], Any]]] = {
    "configuration": lambda client, headers: client.get_model_config("traffic", headers=headers),
    "statistics": lambda client, headers: client.get_inference_statistics("traffic", headers=headers),
    "index": lambda client, headers: client.get_model_repository_index(headers=headers),
    "repository": lambda client, headers: client.load_model("traffic", headers=headers),
    "shared_memory": lambda client, headers: client.get_system_shared_memory_status(headers=headers),
    "trace": lambda client, headers: client.get_trace_settings(headers=headers),
    "logging": lambda client, headers: client.get_log_settings(headers=headers),
}
"""A call for each operation that is counted."""


async def test_calls_are_counted_by_operation() -> None:
    async with clients(TRAFFIC, behind_uvicorn) as (running, made):
        for client in made.values():
            for call in CALLS.values():
                with contextlib.suppress(InferenceServerException):
                    await client.use(partial(call, headers={}))
        metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    for operation in CALLS:
        labels = f'operation="{operation}",session="default/traffic"'
        assert f"partita_information_requests_total{{{labels}}} 2.0" in metrics


@pytest.mark.parametrize("operation", CALLS)
async def test_calls_without_credentials_are_refused_and_not_counted(operation: str) -> None:
    guessed = {"authorization": "Bearer guessed-by-somebody"}
    async with clients(TRAFFIC) as (running, made):
        running.session.clients.allow(AllowedClients())
        for protocol, want_status in ((HTTP, "401"), (GRPC, "StatusCode.UNAUTHENTICATED")):
            with pytest.raises(InferenceServerException) as refused:
                await made[protocol].use(partial(CALLS[operation], headers=guessed))
            assert refused.value.status() == want_status
        assert not running.session.meter.information


@pytest.mark.parametrize(
    ("content", "want_status"),
    [
        pytest.param(b"{", 400, id="no JSON"),
        pytest.param(b"[" * 60_000, 400, id="JSON without end"),
        pytest.param(b'{"ready": "perhaps"}', 400, id="no boolean"),
        pytest.param(b" " * 70_000, 413, id="large"),
    ],
)
async def test_a_malformed_request_for_the_index(content: bytes, want_status: int) -> None:
    async with stand(TRAFFIC) as running:
        answer = await running.client.post("/v2/repository/index", content=content)
        assert (answer.status_code, list(answer.json())) == (want_status, ["error"])
