"""What a frontend says of itself, as the reconcilers get it."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from partita_api.inferencesession import Signals
from partita_operator.engines.frontend_client import Answer, Frontends, session_signals
from partita_operator.engines.ray_serve import serving_status
from partita_operator.engines.serve_state import ServeState
from partita_operator.ports import SessionSignals, StageSignals
from partita_runtime.serving.telemetry.signals import SessionSignals as FrontendSignals

SAID = {
    "session": "default/traffic",
    "windowSeconds": 10.0,
    "plan": "plan-1",
    "nextPlan": None,
    "message": "",
    "offeredRate": 123.456789,
    "goodput": 120.0,
    "badRate": 0.0125,
    "idleFraction": 0.25,
    "p50Ms": 40.0,
    "p99Ms": 95.5,
    "batchSizes": {"8": 3},
    "outcomes": {"in_time": 1200},
    "stages": [
        {
            "module": "a",
            "pipeline": "p0",
            "stage": 0,
            "pool": "fast",
            "planned": 3,
            "ready": 2,
            "idleFraction": 0.4,
            "badRate": 0.02,
            "predictedMicros": 100.0,
            "actualMicros": 110.0,
        }
    ],
}


def test_signals_become_those_of_the_status_and_those_of_the_autoscaler() -> None:
    assert session_signals(FrontendSignals.model_validate(SAID)) == SessionSignals(
        reported=Signals.model_validate(
            {
                "offeredRate": "123.4568",
                "goodput": "120",
                "badRate": "0.0125",
                "idleFraction": "0.25",
                "p50Ms": "40",
                "p99Ms": "95.5",
            }
        ),
        plan="plan-1",
        stages=(StageSignals("a", "p0", 0, ready=2, idle_fraction=0.4, bad_rate=0.02),),
    )


def test_what_replicas_do_otherwise_than_planned_is_in_the_status() -> None:
    warned = FrontendSignals.model_validate(SAID | {"warnings": ["a/p0/0: there is no CUDA device here."]})
    state = ServeState(running=True)
    status = serving_status("default/traffic", state, Answer(warned), {}, url="", progress="", now=0.0)
    assert status.message == "a/p0/0: there is no CUDA device here."


@pytest.fixture
def somebody_else() -> Iterator[str]:
    """The URL of a web server that is no frontend."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if "known" in self.path else 404)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not worth a line."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("session", "want_words"),
    [
        pytest.param("default/known", "no frontend of Partita's", id="somebody else answers"),
        pytest.param("default/lost", "answers 404", id="no such route"),
    ],
)
async def test_who_is_no_frontend_is_named(somebody_else: str, session: str, want_words: str) -> None:
    frontends = Frontends()
    answer = await frontends.ask(somebody_else, session)
    assert answer.signals is None
    assert want_words in answer.problem
    assert f"{somebody_else}/{session}/partita/signals" in answer.problem
    await frontends.close()


async def test_a_frontend_that_cannot_be_reached_is_named() -> None:
    frontends = Frontends()
    answer = await frontends.ask("http://127.0.0.1:1", "default/traffic")
    assert answer.signals is None
    assert "PARTITA_SERVE_URL" in answer.problem
    await frontends.close()
