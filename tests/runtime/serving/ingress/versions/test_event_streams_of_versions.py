"""StreamEvent streams of other versions are sent on event by event; shadow versions get no request for one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.runtime.serving.in_process.stand import WAYS, Stand, Way, stand
from tests.runtime.serving.ingress.test_event_streams import asked, events, late, streamed
from tests.security.clients.hostile_server import Answering, complete, server

from partita_api.session.versions import VersionHeader
from partita_runtime.serving.deploy.version_routes import ShadowRoute, VersionRoute
from partita_runtime.serving.protocol.event_stream import StreamEvent

SECOND: Final = "/v2/models/traffic/versions/2/infer"
STREAM: Final = "Content-Type: text/event-stream"
OUTPUT: Final = StreamEvent("output", b'{"name":"boxes"}').encoded
END: Final = StreamEvent(
    "answer", b'{"model_name":"traffic-v2","model_version":"1","outputs":[{"name":"boxes"}]}'
).encoded


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def main(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stand]:
    way: Way = request.param
    async with stand(late(tmp_path), way=way) as running:
        yield running


def route(running: Stand, url: str, **fields: Any) -> None:
    header = VersionHeader(name="x-variant", value="b")
    version = VersionRoute(**{"name": "2", "session": "traffic-v2", "url": url, "header": header, **fields})
    running.session.reconfigure(replace(running.app, versions=(version,)).epoch)


@asynccontextmanager
async def second(directory: Path) -> AsyncIterator[Stand]:
    async with stand(replace(late(directory), name="traffic-v2")) as other:
        yield other


async def test_events_of_a_version_are_sent_on_as_they_arrive(main: Stand, tmp_path: Path) -> None:
    held = tmp_path / "other"
    held.mkdir()
    (held / "hold").touch()
    async with second(held) as other:
        route(main, f"http://{other.url}")
        async with streamed(main, SECOND) as stream:
            assert (await stream.next())[1]["name"] == "boxes"
            assert other.session.meter.outcomes == {}, "the version has not answered"
            (held / "hold").unlink()
            (_, output), (kind, end) = await stream.rest()
            assert stream.answer.headers["partita-version"] == "2"
    assert (output["name"], output["data"], kind) == ("late.number", [7], "answer")
    assert (end["model_name"], end["model_version"]) == ("traffic", "2")
    assert (main.session.meter.arrived, main.session.meter.versions) == (0, {"2/answered": 1})


async def test_an_error_of_a_version_ends_the_stream(main: Stand, tmp_path: Path) -> None:
    held = tmp_path / "other"
    held.mkdir()
    (held / "hold").touch()
    (held / "7").write_text("refuse")
    async with second(held) as other:
        route(main, f"http://{other.url}")
        async with streamed(main, SECOND) as stream:
            await stream.next()
            (held / "hold").unlink()
            ((kind, error),) = await stream.rest()
        assert (kind, error) == ("error", {"error": "not this one", "status": 400})
        refused = await asked(main, SECOND, inputs=[])
        assert (refused.status_code, refused.headers["partita-version"]) == (400, "2")


async def test_the_client_of_a_version_that_leaves_ends_its_work(main: Stand, tmp_path: Path) -> None:
    held = tmp_path / "other"
    held.mkdir()
    (held / "hold").touch()
    async with second(held) as other:
        route(main, f"http://{other.url}")
        async with streamed(main, SECOND) as stream:
            await stream.next()
        await main.until(lambda: other.session.meter.outcomes["cancelled"], "the version knows")
        assert main.session.bodies.taken == 0
        (held / "hold").unlink()


@pytest.mark.parametrize(
    ("answering", "want"),
    [
        pytest.param(complete(b'{"error":"no"}', "Content-Type: application/json", status="503 Busy"), 200, id="busy"),
        pytest.param(complete(b"", STREAM), 200, id="no event"),
        pytest.param(complete(OUTPUT, STREAM), None, id="no last event"),
        pytest.param(complete(OUTPUT * 2 + END[:-1], STREAM), None, id="half of the last event"),
        pytest.param(complete(OUTPUT + b"\xff: no event\n\n\n", STREAM, status="500 Error"), 500, id="another status"),
    ],
)
async def test_this_session_answers_only_before_the_first_event(
    main: Stand, answering: Answering, want: int | None
) -> None:
    """Otherwise a client would get the outputs of two versions. None: a stream that ends with an error."""
    async with server(answering) as (url, _):
        route(main, url, share=1.0)
        answer = await asked(main)
    if want is None:
        *outputs, (kind, error) = events(answer)
        assert {output["name"] for _, output in outputs} == {"boxes"}
        assert (kind, error["status"], "has no last event" in error["error"]) == ("error", 503, True)
        assert main.session.meter.versions == {"2/failed": 1}
    else:
        assert answer.status_code == want
        assert main.session.meter.arrived == (want == 200)


async def test_what_follows_the_last_event_is_ignored(main: Stand) -> None:
    async with server(complete(OUTPUT + END + OUTPUT + END, STREAM)) as (url, _):
        route(main, url)
        found = events(await asked(main, SECOND))
    assert [kind for kind, _ in found] == ["output", "answer"]
    assert found[-1][1]["model_name"] == "traffic"


async def test_a_version_without_event_streams_answers_as_a_whole(main: Stand) -> None:
    whole = b'{"model_name":"traffic-v2","model_version":"1","outputs":[]}'
    async with server(complete(whole, "Content-Type: application/json")) as (url, _):
        route(main, url)
        answer = await asked(main, SECOND)
    assert (answer.headers["content-type"], answer.json()["model_version"]) == ("application/json", "2")


async def test_a_shadow_version_is_asked_for_no_events_and_the_answers_are_compared(
    main: Stand, tmp_path: Path
) -> None:
    """An event stream is no answer that can be compared."""
    async with second(tmp_path) as other:
        route(main, f"http://{other.url}", shadow=ShadowRoute(share=1.0, absolute=0.001, relative=0.001), header=None)
        assert [kind for kind, _ in events(await asked(main))] == ["output", "output", "answer"]
        await main.until(lambda: main.session.meter.shadows, "the answers have been compared")
    assert main.session.meter.shadows == {"2/equal": 1}
