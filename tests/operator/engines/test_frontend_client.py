"""A frontend's report, as the reconcilers receive it."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pydantic import ValidationError

from partita_api.inferencesession import Signals
from partita_operator.engines.frontend_client import FrontendAnswer, FrontendClient, remarks, serving_signals
from partita_operator.engines.monitoring_tokens import MonitoringTokens
from partita_operator.engines.serve_state import ServeApplication, ServeState
from partita_operator.engines.session_status import serving_status
from partita_operator.ports import Remark, ServingSignals, ServingStatus, StageSignals
from partita_runtime.serving.deploy.applications import frontend_name
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


def test_signals_are_converted_for_the_status_and_for_the_autoscaler() -> None:
    assert serving_signals(FrontendSignals.model_validate(SAID)) == ServingSignals(
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


def test_differences_of_replicas_from_the_plan_are_in_the_status() -> None:
    warned = FrontendSignals.model_validate(SAID | {"warnings": ["a/p0/0: there is no CUDA device here."]})
    state = ServeState(running=True)
    status = serving_status("default/traffic", state, FrontendAnswer(warned), {}, url="", progress="", now=0.0)
    assert (status.message, status.remarks) == ("", (Remark("there is no CUDA device here", ("a/p0/0",)),))


def test_the_message_has_whole_sentences() -> None:
    frontend = ServeApplication(frontend_name("default/traffic"), "DELETING", "", 0.0, True, None)
    state = ServeState(running=True, applications={frontend.name: frontend})
    waiting = FrontendSignals.model_validate(SAID | {"message": "These stages have no replica yet: a/p0/0."})
    status = serving_status(
        "default/traffic", state, FrontendAnswer(waiting), {}, url="", progress="Switching the frontend.", now=0.0
    )
    assert status.message == (
        "Switching the frontend. Ray Serve removes the frontend. These stages have no replica yet: a/p0/0."
    )


def test_a_remark_on_several_stages_appears_once() -> None:
    on_cpu = [f"{module}/p0/0: there is no CUDA device here." for module in "abcdef"]
    found = remarks([*on_cpu, "a/p0/1: batches take long. Measure again.", "Slow."])
    assert [(remark.text, len(remark.stages)) for remark in found] == [
        ("there is no CUDA device here", 6),
        ("batches take long. Measure again", 1),
        ("Slow", 0),
    ]
    assert ServingStatus(message="Waiting.", remarks=found).summary == (
        "Waiting. There is no CUDA device here (a/p0/0, b/p0/0, c/p0/0, d/p0/0 and 2 more). "
        "Batches take long (a/p0/1). Measure again. Slow."
    )


@pytest.fixture
def other_server() -> Iterator[str]:
    """The URL of a web server that is not a frontend."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if "known" in self.path else 404)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("session", "want_words"),
    [
        pytest.param("default/known", "not a frontend of Partita", id="another server answers"),
        pytest.param("default/lost", "answers 404", id="unknown route"),
    ],
)
async def test_a_server_that_is_not_a_frontend_is_named(other_server: str, session: str, want_words: str) -> None:
    frontends = FrontendClient(MonitoringTokens())
    answer = await frontends.signals(other_server, session)
    assert answer.signals is None
    assert want_words in answer.problem
    assert f"{other_server}/{session}/partita/signals" in answer.problem
    await frontends.close()


async def test_a_frontend_that_cannot_be_reached_is_named() -> None:
    frontends = FrontendClient(MonitoringTokens())
    answer = await frontends.signals("http://127.0.0.1:1", "default/traffic")
    assert answer.signals is None
    assert "ray.serveUrl of the chart" in answer.problem
    await frontends.close()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(-1, id="negative"),
        pytest.param(10**400, id="too large to compute with"),
        pytest.param("x", id="text"),
    ],
)
def test_counts_of_frontends_are_numbers_that_can_be_computed_with(count: object) -> None:
    with pytest.raises(ValidationError, match=r"traffic\.decided"):
        FrontendSignals.model_validate(SAID | {"traffic": {"decided": {"a/b/taken": count}}})
