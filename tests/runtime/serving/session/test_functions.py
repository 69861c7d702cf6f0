"""CPU functions in their processes: several calls at once, calls that fail, and calls that are no longer needed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import stand, until
from tests.runtime.serving.plans import FUNCTIONS, application

from partita_api.session.module import FunctionSource
from partita_runtime.serving.session import functions
from partita_runtime.serving.session.function_processes import FunctionError
from partita_runtime.serving.session.functions import MOST_CALLS, FunctionInput, FunctionPool
from partita_runtime.serving.telemetry.signals import Outcome


class Calls:
    """Numbered calls and their results."""

    def __init__(self, directory: Path, processes: int = 1, function: str = "numbered") -> None:
        self.directory = directory
        self.function = FunctionSource(entrypoint=f"{FUNCTIONS}:{function}", kwargs={"directory": str(directory)})
        self.pool = FunctionPool([self.function], processes, self)
        self.vain: set[int] = set()
        self.given: list[int] = []
        """Calls that were given to a process, in order; repeated if the process ended before it started them."""
        self.answers: dict[int, int | str] = {}

    @property
    def began(self) -> list[int]:
        """Calls that a process started, in order."""
        notes = self.directory / "began"
        return [int(line) for line in notes.read_text().split()] if notes.exists() else []

    def order(self, number: int | str, what: str) -> None:
        """The behaviour of a call: crash, or raise something; `hold` holds all calls."""
        (self.directory / str(number)).write_text(what)

    def release(self) -> None:
        (self.directory / "hold").unlink()

    def call(self, *numbers: int) -> None:
        for number in numbers:
            self.pool.call(number, self.function)

    async def answered(self, count: int) -> None:
        await until(lambda: len(self.answers) == count, f"{count} calls are answered")

    def is_unneeded(self, sub_id: int) -> bool:
        return sub_id in self.vain

    def function_input(self, sub_id: int) -> FunctionInput:
        self.given.append(sub_id)
        return FunctionInput({"input": np.array(sub_id)}, {})

    def skipped(self, sub_id: int) -> None:
        self._note(sub_id, "skipped")

    def function_answered(self, sub_id: int, answer: Mapping[str, Any]) -> None:
        self._note(sub_id, int(answer["number"]))

    def function_failed(self, sub_id: int, error: FunctionError) -> None:
        self._note(sub_id, str(error).rpartition(": ")[2])

    def _note(self, sub_id: int, what: int | str) -> None:
        assert sub_id not in self.answers, "a call is answered once"
        self.answers[sub_id] = what


@pytest.fixture
async def calls(tmp_path: Path) -> Any:
    made = Calls(tmp_path)
    await made.pool.prepare()
    yield made
    made.pool.close()


async def test_a_process_gets_several_calls_at_once(calls: Calls) -> None:
    calls.order("hold", "")
    calls.call(0)
    await until(lambda: calls.began == [0], "the first call runs")
    calls.call(*range(1, 20))
    calls.release()
    await calls.answered(20)
    assert calls.began == calls.given == [*range(20)]
    assert calls.answers == {number: number for number in range(20)}


async def test_a_process_gets_a_limited_number_of_calls(calls: Calls) -> None:
    calls.order("hold", "")
    calls.call(*range(20))
    await until(lambda: calls.began == [0], "the first call runs")
    assert calls.given == [*range(MOST_CALLS)]
    calls.release()
    await calls.answered(20)


async def test_idle_processes_share_the_calls(tmp_path: Path) -> None:
    calls = Calls(tmp_path, processes=2)
    await calls.pool.prepare()
    calls.order("hold", "")
    calls.call(0, 1, 2)
    await until(lambda: sorted(calls.began) == [0, 2], "both processes run calls")
    calls.release()
    await calls.answered(3)
    calls.pool.close()


async def test_only_the_failed_call_fails(calls: Calls) -> None:
    calls.order(2, "no such camera")
    calls.call(0, 1, 2, 3, 4)
    await calls.answered(5)
    assert calls.answers == {0: 0, 1: 1, 2: "no such camera", 3: 3, 4: 4}


async def test_a_process_that_ends_fails_only_its_running_call(calls: Calls) -> None:
    calls.order(1, "crash")
    calls.call(0, 1, 2, 3)
    await calls.answered(4)
    assert calls.answers == {0: 0, 1: "its process ended before it answered", 2: 2, 3: 3}
    assert calls.began == [0, 1, 2, 3], "each ran once"
    calls.call(4)
    await calls.answered(5)
    assert calls.answers[4] == 4


async def test_a_call_that_hangs_is_stopped(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.order("hold", "")
    monkeypatch.setattr(functions, "HUNG_SECONDS", 0.2)
    calls.call(0)
    await calls.answered(1)
    assert "did not answer within" in str(calls.answers[0])
    monkeypatch.undo()
    calls.release()
    calls.call(1)
    await calls.answered(2)
    assert calls.answers[1] == 1


async def test_unneeded_calls_are_not_run(calls: Calls) -> None:
    calls.order("hold", "")
    calls.call(0)
    await until(lambda: calls.began == [0], "the first call runs")
    calls.call(1, 2, 3)
    calls.vain |= {1, 3}
    calls.release()
    await calls.answered(4)
    assert calls.answers == {0: 0, 1: "skipped", 2: 2, 3: "skipped"}
    assert calls.began == [0, 2]


async def test_unneeded_calls_are_refused_even_if_no_process_is_free(calls: Calls) -> None:
    calls.order("hold", "")
    calls.call(0)
    await until(lambda: calls.began == [0], "the first call runs")
    calls.call(1, 2)
    calls.vain.add(1)
    await until(lambda: not calls.pool.tick() and calls.answers, "the call that is not needed is refused")
    assert calls.answers == {1: "skipped"}
    calls.release()
    await calls.answered(3)


async def test_a_function_that_cannot_be_loaded(tmp_path: Path) -> None:
    pool = FunctionPool([FunctionSource(entrypoint=f"{FUNCTIONS}:nowhere")], 2, Calls(tmp_path))
    with pytest.raises(FunctionError, match=f"{FUNCTIONS}:nowhere: cannot be loaded: AttributeError"):
        await pool.prepare()


async def test_requests_whose_functions_cannot_be_in_time_are_refused_before_they_run(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    app = (
        application("late")
        .model("only")
        .function("f", "numbered", max_millis=100, directory=str(tmp_path))
        .edge("only", "f")
        .slo(1000)
    )
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [0.0] * 4}]}
    async with stand(app) as running:

        def post() -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(running.client.post("/v2/models/late/infer", json=body))

        first = post()
        began = tmp_path / "began"
        await until(began.exists, "the first request's call runs")
        for answer in await asyncio.gather(post(), post()):
            assert (answer.status_code, "not enough time left" in answer.text) == (504, True), answer.text
        (tmp_path / "hold").unlink()
        assert (await first).status_code == 200
        assert began.read_text().split() == ["0"]
        assert running.session.meter.outcomes[Outcome.TOO_LATE] == 2


async def test_a_function_refuses_what_the_client_has_sent() -> None:
    app = application("odd").model("only").function("f", "odd").edge("only", "f")

    async with stand(app) as running:
        answers = {}
        for number in (1, 2, 3):
            given = {"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [float(number)] * 4}
            answers[number] = await running.client.post("/v2/models/odd/infer", json={"inputs": [given]})

        assert {number: answer.status_code for number, answer in answers.items()} == {1: 200, 2: 400, 3: 200}
        assert answers[2].json() == {"error": "2 is even; send an odd number"}
        assert running.session.meter.outcomes == {Outcome.IN_TIME: 2, Outcome.REFUSED: 1}
        assert running.session.signals().bad_rate == 0, "the session served all that it could"
