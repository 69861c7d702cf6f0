"""Functions with `async def`: many calls at a time on one event loop, which fail and are cancelled one by one."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import stand, until
from tests.runtime.serving.plans import FUNCTIONS, application
from tests.runtime.serving.session.functions import awaited
from tests.runtime.serving.session.test_functions import Calls

from partita_api.session.module import FunctionSource
from partita_runtime.function_server import process
from partita_runtime.function_server.messages import FunctionCall
from partita_runtime.serving.session import functions
from partita_runtime.serving.session.functions import FunctionPool
from partita_runtime.serving.telemetry.signals import Outcome

BODY = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [7.0] * 4}]}


@pytest.fixture
async def calls(tmp_path: Path) -> Any:
    made = Calls(tmp_path, function="awaited")
    await made.pool.prepare()
    yield made
    made.pool.close()


async def test_calls_run_at_the_same_time(calls: Calls) -> None:
    calls.order("hold", "")
    calls.call(*range(50))
    await until(lambda: sorted(calls.began) == [*range(50)], "all calls run")
    calls.release()
    await calls.answered(50)
    assert calls.answers == {number: number for number in range(50)}


async def test_their_number_is_bounded(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST_CONCURRENT", 3)
    calls.order("hold", "")
    calls.call(*range(8))
    await until(lambda: len(calls.began) == 3, "three calls run")
    calls.vain |= {4, 6}
    calls.pool.tick()
    assert calls.answers == {4: "skipped", 6: "skipped"}, "waiting calls that are not needed"
    assert calls.given == [0, 1, 2]
    calls.release()
    await calls.answered(8)
    assert calls.began == [0, 1, 2, 3, 5, 7]


async def test_only_the_failed_call_fails(calls: Calls) -> None:
    calls.order(2, "no such camera")
    calls.order(3, "refuse")
    calls.call(0, 1, 2, 3, 4)
    await calls.answered(5)
    assert calls.answers == {0: 0, 1: 1, 2: "no such camera", 3: "not this one", 4: 4}


async def test_a_cancelled_call_ends_and_makes_place(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST_CONCURRENT", 2)
    calls.order("hold", "")
    calls.call(0, 1, 2)
    await until(lambda: sorted(calls.began) == [0, 1], "two calls run")
    calls.pool.cancel(0)
    await until(lambda: (calls.directory / "cancelled-0").exists(), "the call is cancelled")
    await until(lambda: sorted(calls.began) == [0, 1, 2], "the next one runs")
    calls.release()
    await calls.answered(2)
    assert calls.answers == {1: 1, 2: 2}


async def test_a_process_that_ends_fails_the_calls_that_it_runs_and_is_replaced(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "MOST_CONCURRENT", 2)
    calls.order("hold", "")
    calls.order(0, "crash")
    calls.order(1, "crash")
    calls.call(0, 1, 2)
    await until(lambda: sorted(calls.began) == [0, 1], "two calls run")
    calls.release()
    await calls.answered(3)
    ended = "its process ended before it answered"
    assert calls.answers == {0: ended, 1: ended, 2: 2}, "the last one had not begun"


async def test_a_function_that_blocks_its_event_loop_is_stopped(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.order("hold", "")
    calls.order("block", "")
    monkeypatch.setattr(functions, "HUNG_SECONDS", 0.2)
    monkeypatch.setattr(functions, "_GRACE_SECONDS", 0.0)
    calls.call(0, 1)
    await until(lambda: not calls.pool.tick() and len(calls.answers) == 2, "both calls fail")
    assert {"did not answer within" in str(answer) for answer in calls.answers.values()} == {True}
    monkeypatch.undo()
    calls.release()
    calls.call(2)
    await calls.answered(3)
    assert calls.answers[2] == 2


async def test_both_kinds_of_functions_in_one_session(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    asynchronous = FunctionSource(entrypoint=f"{FUNCTIONS}:awaited", kwargs={"directory": str(tmp_path)})
    calls.pool = FunctionPool([calls.function, asynchronous], 1, calls)
    await calls.pool.prepare()
    calls.order("hold", "")
    calls.call(0)
    calls.pool.call(1, asynchronous)
    await until(lambda: sorted(calls.began) == [0, 1], "both run")
    calls.release()
    await calls.answered(2)
    calls.pool.close()


async def test_a_call_that_waits_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process does by itself, so that other calls go on."""
    monkeypatch.setattr(process, "HUNG_SECONDS", 0.05)
    entrypoint = f"{FUNCTIONS}:awaited"
    monkeypatch.setitem(process._loaded, entrypoint, awaited)
    (tmp_path / "hold").touch()
    call = FunctionCall(entrypoint, {"directory": str(tmp_path)}, {"input": np.array(1)}, {})
    outcome = await process._asynchronous_outcome(call)
    assert "did not answer within" in outcome.problem
    assert (tmp_path / "cancelled-1").exists()


async def test_requests_are_answered_and_their_calls_cancelled_if_the_client_leaves(tmp_path: Path) -> None:
    app = application("late").model("only").function("f", "awaited", directory=str(tmp_path)).edge("only", "f")
    async with stand(app.slo(5000)) as running:
        answer = await running.client.post("/v2/models/late/infer", json=BODY)
        assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [7])
        (tmp_path / "hold").touch()
        leaving = asyncio.create_task(running.client.post("/v2/models/late/infer", json=BODY))
        await until(lambda: (tmp_path / "began").read_text().split() == ["7", "7"], "the second call runs")
        leaving.cancel()
        await until((tmp_path / "cancelled-7").exists, "the call is cancelled")
        assert running.session.meter.outcomes == {Outcome.IN_TIME: 1, Outcome.CANCELLED: 1}
