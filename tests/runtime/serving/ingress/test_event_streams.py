"""Answers as server-sent events: each output is sent as soon as it is known, on both ways to a frontend."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import WAYS, Stand, Way, on_its_own_port, stand, until
from tests.runtime.serving.ingress.raw_http import connected, post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application, detector_with_crops

from partita_runtime.serving.ingress import http_connection, http_server
from partita_runtime.serving.protocol.event_stream import EventReader, StreamEvent
from partita_runtime.serving.protocol.inference_client import decode_answer, encode_request
from partita_runtime.serving.session.settings import FrontendSettings

PATH: Final = "/v2/models/traffic/infer"
EVENTS: Final = {"accept": "text/event-stream"}
SEVEN: Final = np.full((1, 3, 4), 7, np.float32)
TENSOR: Final = {"name": "input", "datatype": "FP32", "shape": [1, 3, 4], "data": [7] * 12}


def late(directory: Path, outputs: tuple[int, ...] = (3,)) -> Application:
    """A session with an early output, and one that the file `hold` delays; orders are in the file `7`."""
    return (
        application("traffic")
        .model("detector", input=(3, 4))
        .model("boxes", input=(2,), outputs=(outputs,))
        .function("late", "numbered", max_millis=5_000, directory=str(directory))
        .edge("detector", "boxes")
        .edge("detector", "late")
    )


class Stream:
    """The events of an answer, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._parts, self._reader = answer.aiter_raw(), EventReader()
        self._read: list[StreamEvent] = []

    async def next(self) -> tuple[str, Any]:
        """Kind and content of the next event."""
        while not self._read:
            self._read += self._reader.events(await asyncio.wait_for(anext(self._parts), 60))
        event = self._read.pop(0)
        return event.kind, json.loads(event.data)

    async def rest(self) -> list[tuple[str, Any]]:
        """The events that are left."""
        async for part in self._parts:
            self._read += self._reader.events(part)
        return [(event.kind, json.loads(event.data)) for event in self._read]


@asynccontextmanager
async def streamed(running: Stand, path: str = PATH, **parts: Any) -> AsyncIterator[Stream]:
    asked = {"inputs": [TENSOR], **parts}
    async with running.client.stream("POST", path, json=asked, headers=EVENTS) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield Stream(answer)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


async def asked(
    running: Stand, path: str = PATH, headers: dict[str, str] | None = None, **parts: Any
) -> httpx.Response:
    return await running.client.post(path, json={"inputs": [TENSOR], **parts}, headers={**EVENTS, **(headers or {})})


def events(answer: httpx.Response) -> list[tuple[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [(event.kind, json.loads(event.data)) for event in EventReader().events(answer.content)]


async def test_an_output_is_sent_while_another_is_not_known(way: Way, tmp_path: Path) -> None:
    async with stand(late(tmp_path), way=way) as running:
        whole = (await running.client.post(PATH, json={"inputs": [TENSOR]})).json()
        (tmp_path / "hold").touch()
        async with streamed(running, id="one") as stream:
            assert await stream.next() == ("output", whole["outputs"][0])
            assert running.session.meter.outcomes == {"in_time": 1}, "the request is not answered"
            (tmp_path / "hold").unlink()
            assert await stream.rest() == [
                ("output", whole["outputs"][1]),
                (
                    "answer",
                    {
                        "model_name": "traffic",
                        "model_version": "1",
                        "outputs": [{"name": "boxes"}, {"name": "late.number"}],
                        "id": "one",
                    },
                ),
            ]
        assert [output["name"] for output in whole["outputs"]] == ["boxes", "late.number"]
        assert running.session.meter.outcomes == {"in_time": 2}


async def test_outputs_that_are_known_together_are_sent_together(way: Way) -> None:
    async with stand(application("traffic").model("only", input=(3, 4)), way=way) as running:
        for accept in ("text/event-stream", "application/json, Text/Event-Stream; q=0.5"):
            answer = await asked(running, headers={"accept": accept})
            assert [kind for kind, _ in events(answer)] == ["output", "answer"]
            assert int(answer.headers["content-length"]) == len(answer.content)
        for accept in ("*/*", "application/json", "text/*"):
            assert (await asked(running, headers={"accept": accept})).json()["outputs"]


async def test_only_requested_outputs_are_sent(tmp_path: Path) -> None:
    async with stand(late(tmp_path)) as running:
        (kind, output), (_, end) = events(await asked(running, outputs=[{"name": "late.number"}]))
        assert (kind, output["name"], end["outputs"]) == ("output", "late.number", [{"name": "late.number"}])
        (tmp_path / "hold").touch()
        async with streamed(running, outputs=[{"name": "boxes"}, {"name": "late.other"}]) as stream:
            assert (await stream.next())[1]["name"] == "boxes"
            (tmp_path / "hold").unlink()
            ((kind, error),) = await stream.rest()
        assert kind == "error"
        assert (error["status"], "the answer has no output 'late.other'" in error["error"]) == (500, True)


@pytest.mark.parametrize("samples", [1, 3])
async def test_the_rows_are_those_of_an_answer_without_events(samples: int) -> None:
    """Each sample has another number of crops, and `broken` answers for none."""
    app = detector_with_crops().function("extra", "broken").edge("detector", "extra").optional("extra")
    tensors = np.zeros((samples, 3, 4), np.float32)
    tensors[:, 0, 0] = [2, 0, 1][:samples]
    content, headers = infer_body(tensors)
    async with stand(app) as running:
        whole = await running.client.post(PATH, content=content, headers=headers)
        stream = await running.client.post(PATH, content=content, headers={**headers, **EVENTS})
    *outputs, (kind, end) = events(stream)
    names = [output["name"] for output in end["outputs"]]
    found = {output["name"]: output for _, output in outputs}
    assert (kind, len(outputs), {*found}) == ("answer", len(names), {*names})
    assert [found[name] for name in names] == whole.json()["outputs"]
    assert "extra.answered" in names


async def test_an_optional_module_that_is_left_out_is_no_error(tmp_path: Path) -> None:
    app = late(tmp_path).function("extra", "broken").edge("detector", "extra").optional("extra")
    (tmp_path / "hold").touch()
    async with stand(app, FrontendSettings(function_processes=2)) as running, streamed(running) as stream:
        early = {found[1]["name"]: found[1]["data"] for found in (await stream.next(), await stream.next())}
        (tmp_path / "hold").unlink()
        rest = await stream.rest()
    assert early.keys() <= {"boxes", "extra.answered", "extra.index"}
    every = early | {output["name"]: output["data"] for kind, output in rest if kind == "output"}
    assert (every["extra.answered"], rest[-1][0]) == ([False], "answer")


@pytest.mark.parametrize(
    ("order", "want_status", "want_message"),
    [
        pytest.param("too dark", 500, "too dark", id="a function fails"),
        pytest.param("refuse", 400, "not this one", id="a function refuses"),
    ],
)
async def test_an_error_ends_a_stream(
    way: Way, tmp_path: Path, order: str, want_status: int, want_message: str
) -> None:
    (tmp_path / "hold").touch()
    (tmp_path / "7").write_text(order)
    async with stand(late(tmp_path), way=way) as running:
        async with streamed(running) as stream:
            assert (await stream.next())[0] == "output"
            (tmp_path / "hold").unlink()
            ((kind, error),) = await stream.rest()
        assert (kind, error["status"], want_message in error["error"]) == ("error", want_status, True)
        without_events = await running.client.post(PATH, json={"inputs": [TENSOR]})
    assert error == {**without_events.json(), "status": without_events.status_code}


@pytest.mark.parametrize(
    ("parts", "want_status", "want_message"),
    [
        pytest.param({"parameters": {"timeout": 1}}, 504, "not enough time", id="too late"),
        pytest.param({"inputs": []}, 400, "the inputs must be", id="malformed"),
        pytest.param(
            {"parameters": {"binary_data_output": True}}, 400, "has no binary data; ask for JSON", id="binary"
        ),
        pytest.param(
            {"outputs": [{"name": "boxes", "parameters": {"binary_data": True}}]},
            400,
            "has no binary data for 'boxes'",
            id="a binary output",
        ),
    ],
)
async def test_an_error_before_the_first_output_has_its_status(
    way: Way, tmp_path: Path, parts: dict[str, Any], want_status: int, want_message: str
) -> None:
    async with stand(late(tmp_path), way=way) as running:
        answer = await asked(running, **parts)
    assert (answer.status_code, answer.headers["content-type"]) == (want_status, "application/json")
    assert want_message in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        pytest.param("/v1/models/traffic:predict", {}, id="V1"),
        pytest.param(PATH, {"content-type": "application/cloudevents+json"}, id="a structured event"),
        pytest.param(
            PATH, {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "a", "ce-type": "b"}, id="a binary event"
        ),
    ],
)
async def test_other_protocols_have_no_event_stream(
    way: Way, tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    async with stand(late(tmp_path), way=way) as running:
        answer = await asked(running, path, headers)
    assert (answer.status_code, "leave out Accept: text/event-stream" in answer.json()["error"]) == (406, True)


async def test_an_output_that_json_cannot_say_ends_the_request(tmp_path: Path) -> None:
    """The rest of its work is cancelled."""
    app = (
        application("traffic")
        .model("detector", input=(3, 4))
        .function("twice", "double")
        .function("late", "numbered", max_millis=5_000, directory=str(tmp_path))
        .edge("detector", "twice")
        .edge("detector", "late")
    )
    (tmp_path / "hold").touch()
    tensor = SEVEN.copy()
    tensor[0, 2, 3] = np.inf
    content, headers = infer_body(tensor)
    async with stand(app) as running:
        answer = await running.client.post(PATH, content=content, headers={**headers, **EVENTS})
        assert (answer.status_code, "ask for binary data" in answer.json()["error"]) == (500, True)
        assert running.session.serving is not None
        assert running.session.serving.idle
        assert running.session.meter.outcomes == {"failed": 1}
        (tmp_path / "hold").unlink()


async def test_the_work_of_a_client_that_leaves_is_cancelled(way: Way, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with stand(late(tmp_path), way=way) as running:
        async with streamed(running) as stream:
            await stream.next()
        await until(lambda: running.session.meter.outcomes["cancelled"], "it counts as cancelled")
        assert running.session.serving is not None
        assert running.session.serving.idle
        (tmp_path / "hold").unlink()
        assert [kind for kind, _ in events(await asked(running))] == ["output", "output", "answer"]


def request(version: str = "1.1", **headers: str) -> bytes:
    body, sent = infer_body(SEVEN)
    return post(body, {**sent, **EVENTS, **headers}, PATH).replace(b"HTTP/1.1", f"HTTP/{version}".encode())


async def read_chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the content of a chunked answer."""
    head, content = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20), b""
    while size := int(await asyncio.wait_for(reader.readline(), 20), 16):
        content += (await reader.readexactly(size + 2))[:-2]
    assert await reader.readexactly(2) == b"\r\n"
    return head.lower(), content


async def delayed(tmp_path: Path, reader: asyncio.StreamReader, seen: bytes) -> bytes:
    """Read until the first output is there, and let the other one follow."""
    begun = await asyncio.wait_for(reader.readuntil(seen), 20)
    (tmp_path / "hold").unlink()
    return begun


async def test_a_connection_is_used_again_after_a_stream(tmp_path: Path) -> None:
    async with stand(late(tmp_path), way=on_its_own_port) as running, connected(running) as (reader, writer):
        for _ in range(3):
            (tmp_path / "hold").touch()
            writer.write(request() + request())  # the second one waits for the first
            await until(lambda: running.session.meter.outcomes.total() % 2 == 0, "the earlier ones are answered")
            await asyncio.sleep(0.1)
            (tmp_path / "hold").unlink()
            for _ in range(2):
                head, content = await read_chunks(reader)
                assert b"connection: keep-alive" in head
                assert [event.kind for event in EventReader().events(content)] == ["output", "output", "answer"]
        assert running.session.meter.outcomes == {"in_time": 6}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_connection_that_does_not_stay_ends_with_the_stream(tmp_path: Path, version: str) -> None:
    """HTTP/1.0 has no chunks, also if a client would keep its connection."""
    connection = "keep-alive" if version == "1.0" else "close"
    (tmp_path / "hold").touch()
    async with stand(late(tmp_path), way=on_its_own_port) as running, connected(running) as (reader, writer):
        writer.write(request(version, Connection=connection))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        (tmp_path / "hold").unlink()
        content = await asyncio.wait_for(reader.read(), 20)
    assert b"connection: close" in head
    assert (b"chunked" in head, content.endswith(b"0\r\n\r\n")) == ((version != "1.0"),) * 2
    if version == "1.0":
        assert [event.kind for event in EventReader().events(content)] == ["output", "output", "answer"]


async def test_a_client_that_reads_no_events_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an output is not known yet: its request holds nothing any more."""
    monkeypatch.setattr(http_server, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http_connection, "SEND_SECONDS", 0.2)
    (tmp_path / "hold").touch()
    app = late(tmp_path, outputs=(1_000_000,)).slo(120_000)
    async with stand(app, way=on_its_own_port) as running, connected(running) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing is taken from the socket
        asked = encode_request({"input": SEVEN.repeat(2, axis=0)}, binary_outputs=False)  # the output has 10 MB
        writer.write(post(asked.body, {**asked.headers, **EVENTS}, PATH))
        await until(lambda: running.session.meter.outcomes["cancelled"], "the server has closed the connection")
        assert running.session.serving is not None
        assert running.session.serving.idle
        (tmp_path / "hold").unlink()


async def test_a_slow_client_that_reads_gets_all_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http_connection, "SEND_SECONDS", 1.0)
    (tmp_path / "hold").touch()
    app = late(tmp_path, outputs=(1_000_000,)).slo(120_000)
    async with stand(app, way=on_its_own_port) as running:
        async with streamed(running) as stream:
            parts, size = [], 0
            async for part in stream.answer.aiter_raw():
                parts.append(part)
                size += len(part)
                (tmp_path / "hold").unlink(missing_ok=True)
                if len(parts) % 20 == 0:
                    await asyncio.sleep(0.02)
        found = list(EventReader().events(b"".join(parts)))
    assert [event.kind for event in found] == ["output", "output", "answer"]
    assert json.loads(found[0].data)["shape"] == [1, 1_000_000]


async def test_the_sdk_decodes_the_same_tensors(tmp_path: Path) -> None:
    """An output is the tensor of an answer in JSON."""
    async with stand(late(tmp_path)) as running:
        *outputs, _ = events(await asked(running))
        whole = await running.client.post(PATH, json={"inputs": [TENSOR]})
    joined = json.dumps({"outputs": [output for _, output in outputs]}).encode()
    ours, theirs = decode_answer({}, joined), decode_answer(whole.headers, whole.content)
    assert {name: tensor.tolist() for name, tensor in ours.items()} == {
        name: tensor.tolist() for name, tensor in theirs.items()
    }
