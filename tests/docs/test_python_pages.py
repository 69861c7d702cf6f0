"""Python on pages that need no service: each program runs."""

import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.docs.pages import programs

from partita_runtime.load.event_log import read_log
from partita_runtime.serving.telemetry.logged_events import V2, Content, Origin, logged_event

FUNCTIONS, SCHEDULING = "docs/reference/functions.md", "docs/concepts/scheduling.md"
SIMULATION, PLANNER = "docs/tasks/simulation.md", "docs/internals/planner.md"
SDK, REQUEST_LOG = "docs/reference/sdk.md", "docs/tasks/request-log.md"


def execute(program: str, **names: Any) -> dict[str, Any]:
    """The names that the program leaves."""
    exec(program, names)
    return names


def test_a_function() -> None:
    (program,) = programs(FUNCTIONS)
    left = execute(program, np=np, crops=[np.zeros((3, 4, 4))] * 2)

    answer = left["crop"]({"input": np.zeros((3, 8, 8))}, {"detector": [np.zeros((2, 4))]})
    assert answer["classifier"].shape == (2, 3, 4, 4)


def test_calls_of_the_scheduling_core() -> None:
    (program,) = programs(SCHEDULING)
    core = execute(program)["core"]

    assert execute(program.replace("core.next_wakeup()", "wakeup = core.next_wakeup()"))["wakeup"] == 18_000
    assert core.signals(24_000).modules["detector"].in_time == 1


def test_a_simulation() -> None:
    (program,) = programs(SIMULATION)

    assert execute(program)["report"].attainment > 0.9


def test_a_plan() -> None:
    (program,) = programs(PLANNER)

    assert execute(program)["outcome"].plan.gpus() == {"t4": 5}


def test_a_collector_of_a_request_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = programs(REQUEST_LOG)
    serving = '("", 8080), Collector).serve_forever()'
    assert serving in program
    collector = execute(program.replace(f"ThreadingHTTPServer({serving}", ""))["Collector"]
    origin, content = Origin("1", "default/traffic", V2), Content(b'{"inputs": []}\0\1', "application/octet-stream", 14)
    with ThreadingHTTPServer(("127.0.0.1", 0), collector) as server, httpx.Client() as client:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for second in (0, 2):
            event = logged_event(origin, content, second, max_body_bytes=100)
            answer = client.post(f"http://127.0.0.1:{server.server_port}", headers=event.headers, content=event.body)
            assert answer.status_code == 204
        server.shutdown()
    with Path("requests.jsonl").open() as lines:
        requests = read_log(lines).requests
    assert [request.second for request in requests] == [0.0, 2.0]
    assert {request.payload.body for request in requests} == {content.body}
    assert requests[0].payload.headers["Inference-Header-Content-Length"] == "14"


def test_a_session_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    """The parts that need a cluster run in tests/e2e."""
    build, plan, _serve, _call = programs(SDK)
    left = execute(plan, **execute(build))

    assert "kind: InferenceSession" in capsys.readouterr().out
    assert left["cheaper"].cost_per_hour <= left["plan"].cost_per_hour
