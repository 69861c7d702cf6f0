"""Samples of a quality check: executed on a plan that does not serve yet, by the operator only, and not counted."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.runtime.serving.in_process.stand import (
    MONITORING,
    SAMPLE,
    Stand,
    on_its_own_port,
    post,
    stand,
    until,
)
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application

from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.deploy.epochs import CheckState, Epoch
from partita_runtime.serving.session.settings import FrontendSettings

FAST_SWITCH = FrontendSettings(function_processes=1, switch_patience_seconds=0.3)
BEFORE = application("one").model("only", input=(2, 2), outputs=((2,),))
AFTER = application("one").model("only", input=(2, 2), outputs=((7,),)).planned("plan-2")
WAITS = "Plan plan-2 waits until its answers to samples are checked."


def epoch_of(app: Application, check: CheckState | None, **fields: Any) -> Epoch:
    """As the frontend gets it."""
    return Epoch.model_validate(app.epoch.model_copy(update={"check": check, **fields}).user_config())


async def sample(running: Stand, plan: str, headers: Mapping[str, str] = MONITORING) -> httpx.Response:
    content, length = infer_body(SAMPLE)
    return await running.client.post(f"/partita/check/{plan}", content=content, headers={**length, **headers})


async def test_a_plan_answers_samples_before_it_serves_and_serves_once_it_may() -> None:
    async with stand(BEFORE, FAST_SWITCH) as running:
        running.session.reconfigure(epoch_of(AFTER, CheckState.AWAITED))
        await running.add_replicas(AFTER)
        await until(lambda: running.session.signals().message == WAITS, "plan-2 waits for its check")

        answer = await sample(running, "plan-2")
        assert (answer.status_code, answer.json()["outputs"][0]["shape"]) == (200, [1, 7])
        assert (await sample(running, "plan-1")).json()["outputs"][0]["shape"] == [1, 2]
        assert '"shape":[1,2]' in (await post(running))[1], "clients get the answers of the plan that serves"
        assert running.session.meter.arrived == 1, "only the client's request counts"

        running.session.reconfigure(epoch_of(AFTER, CheckState.OPEN))
        await running.serves("plan-2")
        assert '"shape":[1,7]' in (await post(running))[1]


async def test_a_plan_that_has_failed_its_check_leaves_no_trace() -> None:
    async with stand(BEFORE, FAST_SWITCH) as running:
        running.session.reconfigure(epoch_of(AFTER, CheckState.AWAITED))
        new = await running.add_replicas(AFTER)
        await until(lambda: running.session.signals().message == WAITS, "plan-2 waits for its check")

        running.session.reconfigure(epoch_of(BEFORE, CheckState.OPEN))
        await asyncio.gather(*(running.retire(replica) for replica in new))

        assert (await post(running))[0] == 200
        signals = running.session.signals()
        assert (signals.plan, signals.next_plan, signals.message) == ("plan-1", None, "")
        assert (await sample(running, "plan-2")).status_code == 503


async def test_the_first_plan_takes_no_requests_before_its_check() -> None:
    async with stand(BEFORE, FAST_SWITCH, serving=False) as running:
        running.session.reconfigure(epoch_of(BEFORE, CheckState.AWAITED))
        await until(lambda: "samples are checked" in running.session.signals().message, "the plan waits")

        assert (await post(running))[0] == 503
        assert (await sample(running, "plan-1")).status_code == 200

        running.session.reconfigure(epoch_of(BEFORE, CheckState.OPEN))
        await running.serves("plan-1")


async def test_a_sample_that_fails_is_an_answer() -> None:
    async with stand(BEFORE, FAST_SWITCH) as running:
        running.session.reconfigure(epoch_of(BEFORE, CheckState.OPEN))

        answer = await running.client.post("/partita/check/plan-1", json={"inputs": []}, headers=MONITORING)

        assert answer.status_code == 400


@pytest.mark.parametrize(
    ("check", "headers", "status"),
    [
        pytest.param(CheckState.OPEN, {}, 401, id="without the token"),
        pytest.param(CheckState.OPEN, {"Authorization": "Bearer key-of-a-client-1"}, 401, id="with a client's key"),
        pytest.param(None, MONITORING, 404, id="with the token, of a session without a quality check"),
    ],
)
async def test_nobody_else_executes_samples(check: CheckState | None, headers: Mapping[str, str], status: int) -> None:
    async with stand(BEFORE, FAST_SWITCH) as running:
        running.session.reconfigure(epoch_of(BEFORE, check, clients=AllowedClients(salt="s")))

        assert (await sample(running, "plan-1", headers)).status_code == status
        assert (await post(running))[0] == 401


async def test_the_frontends_own_port_takes_no_samples() -> None:
    async with stand(BEFORE, FAST_SWITCH, way=on_its_own_port) as running:
        running.session.reconfigure(epoch_of(BEFORE, CheckState.OPEN))

        assert (await sample(running, "plan-1")).status_code == 404
