"""The SDK's client against a session that serves in this process, over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, on_its_own_port, stand
from tests.runtime.serving.ingress.test_event_streams import SEVEN as HELD
from tests.runtime.serving.ingress.test_event_streams import late
from tests.runtime.serving.plans import Application, application
from tests.security.clients.hostile_server import complete, server

import partita
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest

APP = application("shop").model("classifier", outputs=((2,), (3,)))
KEY = "f3c1a0b9d2e84f6a97b5c3d1e0f2a4b6"
SALT = "uid-of-the-session"


@pytest.fixture
async def running() -> AsyncIterator[Stand]:
    async with stand(APP, way=on_its_own_port) as made:
        yield made


async def asked(running: Stand, call: Any, **options: Any) -> Any:
    """What a client says. It blocks, and the session is on this event loop."""

    def ask() -> Any:
        with partita.Client(f"http://{running.url}/default/shop", **options) as client:
            return call(client)

    return await asyncio.to_thread(ask)


def held(directory: Path) -> Application:
    """A session whose second output is known once the file `hold` is gone."""
    return replace(late(directory), name="shop")


def infer(client: partita.Client, inputs: Any = SAMPLE, **options: Any) -> Any:
    return client.infer(inputs, **options)


@pytest.mark.parametrize(
    "inputs",
    [pytest.param({"input": SAMPLE.repeat(3, axis=0)}, id="by name"), pytest.param(SAMPLE.repeat(3, axis=0), id="one")],
)
async def test_arrays_in_and_arrays_out(running: Stand, inputs: Any) -> None:
    answer = await asked(running, partial(infer, inputs=inputs))

    assert {name: (tensor.shape, tensor.dtype) for name, tensor in answer.items()} == {
        "classifier.0": ((3, 2), np.float32),
        "classifier.1": ((3, 3), np.float32),
    }


async def test_outputs_come_as_soon_as_they_are_known(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()

    def call(client: partita.Client) -> Any:
        found = []
        for name, tensor in client.infer_stream(HELD):
            (tmp_path / "hold").unlink(missing_ok=True)
            found.append((name, tensor))
        return found, client.infer(HELD)

    async with stand(held(tmp_path), way=on_its_own_port) as running:
        found, whole = await asked(running, call)
    assert [name for name, _ in found] == ["boxes", "late.number"]
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in found} == {
        name: (tensor.dtype, tensor.tolist()) for name, tensor in whole.items()
    }


async def test_an_error_after_the_first_output_is_raised_as_others_are(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    (tmp_path / "7").write_text("refuse")

    def call(client: partita.Client) -> Any:
        for name, _ in client.infer_stream(HELD):
            assert name == "boxes"
            (tmp_path / "hold").unlink()

    async with stand(held(tmp_path), way=on_its_own_port) as running:
        with pytest.raises(partita.InferenceError, match="answers 400: not this one") as refused:
            await asked(running, call)
        assert refused.value.status == 400


async def test_an_error_before_the_first_output_is_raised_by_the_first_step(running: Stand) -> None:
    with pytest.raises(partita.InferenceError, match=r"answers 504.*allow more time") as late:
        await asked(running, lambda client: next(client.infer_stream(SAMPLE, deadline_ms=0.001)))
    assert late.value.status == 504


async def test_a_loop_that_is_left_early_cancels_the_request(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()

    def call(client: partita.Client) -> Any:
        with contextlib.closing(client.infer_stream(HELD)) as outputs:
            next(outputs)

    async with stand(held(tmp_path), way=on_its_own_port) as running:
        await asked(running, call)
        await running.until(lambda: running.session.meter.outcomes["cancelled"], "the session knows")
        (tmp_path / "hold").unlink()


@pytest.mark.parametrize(
    ("events", "says"),
    [
        pytest.param(b'event: output\ndata: {"name": "a"}\n\n', "not of the Open Inference Protocol", id="no tensor"),
        pytest.param(b"event: error\ndata: []\n\n", "an error that is not of the protocol", id="another error"),
        pytest.param(b"event: answer\ndata: {}\n", "without its last event; try again", id="cut off"),
        pytest.param(b"event: news\ndata: {}\n\n", "without its last event; try again", id="another event"),
    ],
)
async def test_streams_that_are_not_of_the_protocol(events: bytes, says: str) -> None:
    async with server(complete(events, "Content-Type: text/event-stream")) as (url, _):
        with partita.Client(f"{url}/default/shop") as client, pytest.raises(partita.InferenceError, match=says):
            await asyncio.to_thread(list, client.infer_stream(SAMPLE))


async def test_inputs_and_outputs_are_described(running: Stand) -> None:
    found = await asked(running, lambda client: client.metadata())

    assert found["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 2, 2]}]


async def test_a_deadline_shortens_the_slo_of_one_request(running: Stand) -> None:
    with pytest.raises(partita.InferenceError, match=r"answers 504.*allow more time") as late:
        await asked(running, partial(infer, deadline_ms=0.001))
    assert late.value.status == 504
    assert await asked(running, partial(infer, deadline_ms=60_000))


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        pytest.param({"other": SAMPLE}, "other", id="another name"),
        pytest.param(SAMPLE[:, :1], "must be FP32", id="another shape"),
        pytest.param(SAMPLE[:0], "answers 400", id="no samples"),
        pytest.param(np.full_like(SAMPLE, np.nan), "NaN", id="not a number"),
    ],
)
async def test_refusals_have_the_words_of_the_session(running: Stand, inputs: Any, says: str) -> None:
    with pytest.raises(partita.InferenceError, match=says) as refused:
        await asked(running, partial(infer, inputs=inputs))
    assert (refused.value.status, refused.value.retry_after_s) == (400, None)


async def test_elements_that_no_session_takes_are_refused_before_a_request(running: Stand) -> None:
    with pytest.raises(ValueError, match="complex64; use one of float32"):
        await asked(running, partial(infer, inputs=SAMPLE.astype(np.complex64)))


async def test_credentials_of_a_client(running: Stand) -> None:
    clients = AllowedClients(salt=SALT, api_keys=(key_digest(SALT, KEY.encode()),))
    running.session.reconfigure(replace(APP, clients=clients).epoch)

    for wrong in (None, KEY[::-1]):
        with pytest.raises(partita.InferenceError, match=r"answers 401.*as credentials") as refused:
            await asked(running, infer, credentials=wrong)
        assert refused.value.status == 401
        assert KEY[::-1] not in str(refused.value)
    assert await asked(running, infer, credentials=f"{KEY}\n")


async def test_a_session_without_replicas_says_when_to_try_again() -> None:
    async with stand(APP, way=on_its_own_port, serving=False) as starting:
        for replica in list(starting.workers):
            await starting.kill(replica)
        with pytest.raises(partita.InferenceError, match="answers 503") as refused:
            await asked(starting, infer)
    assert refused.value.status == 503
    assert refused.value.retry_after_s is not None


async def test_a_server_that_is_no_session_is_not_believed() -> None:
    async def answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with partita.Client(f"http://{host}:{port}/default/shop") as client:
            with pytest.raises(partita.InferenceError, match="not of the Open Inference Protocol"):
                await asyncio.to_thread(client.infer, SAMPLE)
            with pytest.raises(partita.InferenceError, match="does not describe a model"):
                await asyncio.to_thread(client.metadata)


async def test_redirects_do_not_take_credentials_elsewhere() -> None:
    heads: list[bytes] = []

    async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        _host, port = writer.get_extra_info("sockname")
        writer.write(f"HTTP/1.1 307 See\r\nLocation: http://127.0.0.1:{port}/\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(redirects, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with (
            partita.Client(f"http://{host}:{port}/default/shop", credentials=KEY) as client,
            pytest.raises(partita.InferenceError, match="answers 307"),
        ):
            await asyncio.to_thread(client.metadata)
    assert len(heads) == 1


async def test_a_silent_server_is_left_after_the_timeout() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with (
            partita.Client(f"http://{host}:{port}/default/shop", timeout_s=0.05) as client,
            pytest.raises(partita.InferenceError, match="did not answer in time") as late,
        ):
            await asyncio.to_thread(client.metadata)
        assert late.value.status is None


def test_nobody_listens() -> None:
    with partita.Client("http://127.0.0.1:1/default/shop") as client, pytest.raises(partita.InferenceError) as refused:
        client.metadata()
    assert "does not answer" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "credentials", "says"),
    [
        pytest.param("127.0.0.1:8000/default/shop", None, "is not the URL of a session", id="no scheme"),
        pytest.param("http://127.0.0.1", None, "is not the URL of a session", id="no session"),
        pytest.param("http://127.0.0.1/default/shop?a=b", None, "is not the URL", id="a query"),
        pytest.param("http://127.0.0.1/default/shop", "two words", "credentials are", id="a space"),
        pytest.param("http://127.0.0.1/default/shop", "a\r\nX: y", "credentials are", id="another header"),
        pytest.param("http://127.0.0.1/default/shop", " ", "credentials are", id="nothing"),
    ],
)
def test_addresses_and_credentials_are_checked_first(url: str, credentials: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        partita.Client(url, credentials=credentials)
    assert credentials is None or not credentials.strip() or credentials not in str(refused.value)
