"""Phases of load against a real HTTP server that stands for a frontend."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.devtools.demo.demo_results import demo_result

from partita_api.inferencesession import InferenceSession
from partita_devtools.demo.config import LoadPhase
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.traffic import SessionEndpoint, first_answer, send_phases
from partita_devtools.sessions.snapshot import SessionSnapshot
from partita_runtime.serving.protocol.inference_client import Payload

TOKEN = "token-of-the-namespace"


class Frontend:
    """Answers what the test says, and counts."""

    def __init__(self) -> None:
        self.received = Counter[str]()
        self.refused = 0
        self.signals: Any = demo_result().samples[0].signals.model_dump(mode="json", by_alias=True)
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        path = request.path.removeprefix("/default/traffic")
        self.received[path] += 1
        if path == "/partita/signals":
            may = request.headers.get("authorization") == f"Bearer {TOKEN}"
            return web.json_response(self.signals) if may else web.Response(status=401)
        if self.received[path] <= self.refused:
            return web.Response(status=503, text="no plan yet")
        return web.Response(body=b"{}")


@pytest.fixture
async def frontend() -> AsyncIterator[Frontend]:
    frontend = Frontend()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", frontend.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    frontend.url = f"http://127.0.0.1:{runner.addresses[0][1]}/default/traffic"
    yield frontend
    await runner.cleanup()


def patient_session() -> InferenceSession:
    """The session with an SLO that a busy machine keeps: what is counted is what is answered."""
    session = demo_result().session
    slo = session.spec.slo.model_copy(update={"latency_ms": 60_000})
    return session.model_copy(update={"spec": session.spec.model_copy(update={"slo": slo})})


class Looks:
    """What the session says, without a cluster."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, line: str) -> None:
        self.lines.append(line)

    async def look(self) -> SessionSnapshot:
        result = demo_result()
        status = result.session.status.model_validate(
            {"currentPlan": {"name": result.plan.metadata.name, "costPerHour": "1", "throughput": "1"}}
        )
        stage = {"module": "detector", "pipeline": "p0", "stage": 0, "pool": "l4-emulated", "desired": 3}
        plan = result.plan.model_copy(update={"status": result.plan.status.model_validate({"stages": [stage]})})
        return SessionSnapshot(result.session.model_copy(update={"status": status}), result.pools, (plan,))


async def test_phases_follow_each_other_at_their_rates_while_the_session_is_looked_at(frontend: Frontend) -> None:
    endpoint, looks = SessionEndpoint(frontend.url, "traffic", TOKEN), Looks()
    phases = (LoadPhase("first", 0.2, 1.5), LoadPhase("second", 0.4, 1.0))

    sent, seen = await send_phases(
        endpoint, patient_session(), phases, (Payload({}, b"x"),), seed=3, look=looks.look, report=looks.report
    )

    assert [(phase.name, phase.rate) for phase in sent] == [("first", 50.0), ("second", 100.0)]
    assert frontend.received["/v2/models/traffic/infer"] == sum(phase.report.requests for phase in sent)
    assert all(phase.report.attainment == 1 for phase in sent)
    assert sent[1].start_s >= sent[0].start_s + 1.0
    assert len(seen) >= 2
    assert seen[0].desired == {"detector/p0/0": 3}
    assert [sample.at_s for sample in seen] == sorted(sample.at_s for sample in seen)
    assert any(line.startswith("second: 100 requests/s for 1 s") for line in looks.lines)


async def test_same_seed_sends_the_same_requests(frontend: Frontend) -> None:
    endpoint, looks = SessionEndpoint(frontend.url, "traffic", TOKEN), Looks()

    counts = []
    for seed in (1, 1, 2):
        sent, _ = await send_phases(
            endpoint, demo_result().session, (LoadPhase("only", 1.0, 0.5),), (Payload({}, b"x"),),
            seed=seed, look=looks.look, report=looks.report,
        )  # fmt: skip
        counts.append(sent[0].report.requests)

    assert counts[0] == counts[1] != counts[2]


async def test_signals_that_cannot_be_read_are_said_and_the_load_goes_on(frontend: Frontend) -> None:
    frontend.signals = {"nothing": "useful"}
    looks = Looks()

    sent, seen = await send_phases(
        SessionEndpoint(frontend.url, "traffic", TOKEN), patient_session(), (LoadPhase("only", 0.1, 0.3),),
        (Payload({}, b"x"),), seed=0, look=looks.look, report=looks.report,
    )  # fmt: skip

    assert seen == ()
    assert sent[0].report.attainment == 1
    assert any("no signals at" in line for line in looks.lines)


async def test_first_answer_is_waited_for(frontend: Frontend) -> None:
    frontend.refused = 3

    await first_answer(SessionEndpoint(frontend.url, "traffic"), Payload({}, b"x"))

    assert frontend.received["/v2/models/traffic/infer"] == 4


async def test_frontend_that_never_answers_is_given_up(frontend: Frontend) -> None:
    frontend.refused = 10**9

    with pytest.raises(DemoError, match="503 no plan yet"):
        await first_answer(SessionEndpoint(frontend.url, "traffic"), Payload({}, b"x"), timeout_s=0.3)
