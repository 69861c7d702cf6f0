"""Calls that are batches themselves, on unequal slices, under ELSA: the same policy as in simulations, live."""

import asyncio
import dataclasses
from pathlib import Path

from tests.runtime.serving.in_process.stand import Stand, post, stand
from tests.runtime.serving.plans import application

from partita_api.session.execution import Batching, BatchingPolicy
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.simulation.trace_replay import Replay, replay

WHOLE, QUARTER = 1, 4
APP = dataclasses.replace(
    application("queries").model("only", alpha_micros=100_000, beta_micros=0).slo(2_000),
    slices=(WHOLE, QUARTER),
    policy=BatchingPolicy.ELSA,
)
"""A sample takes 0.1 s on the whole GPU and 0.4 s on the quarter, where up to four are in time."""


def executed(running: Stand) -> dict[int, int]:
    """Batches that each slice has run."""
    assert running.session.serving is not None
    stages = running.session.serving.dispatcher.signals().stages
    return {slice: stages[StageRef("only", f"p{number}", 0)].executions for number, slice in enumerate(APP.slices)}


def replayed(directory: Path) -> Replay:
    (trace,) = directory.iterdir()
    return replay(trace.read_text().splitlines())


async def test_a_whole_call_runs_on_the_smallest_slice_that_is_in_time(tmp_path: Path) -> None:
    settings = FrontendSettings(function_processes=1, trace_directory=str(tmp_path))
    async with stand(APP, settings) as running:
        assert running.session.serving is not None
        assert running.session.serving.epoch.plan.policy == "Elsa"
        assert (await post(running))[0] == 200
        assert executed(running) == {WHOLE: 0, QUARTER: 1}
        assert (await post(running, samples=8))[0] == 200
        assert executed(running) == {WHOLE: 1, QUARTER: 1}
        assert (await post(running, samples=2))[0] == 200
        assert executed(running) == {WHOLE: 1, QUARTER: 2}
        assert running.session.signals().batch_sizes == {1: 1, 2: 1, 8: 1}
    assert replayed(tmp_path).difference is None


async def test_calls_that_were_one_batch_are_queries_of_their_own_behind_it() -> None:
    """Two calls of two samples, which a module that forms batches answers together."""
    batching = Batching(policy=BatchingPolicy.DEFERRED, modules={"queries": BatchingPolicy.ELSA})
    app = application("behind").model("joined", outputs=((2, 2),)).model("queries").edge("joined", "queries")
    async with stand(app.slo(2_000).with_spec(batching=batching)) as running:
        answers = await asyncio.gather(*(post(running, samples=2) for _ in range(2)))
        assert [status for status, _ in answers] == [200] * 2, answers
        assert running.session.serving is not None
        core = running.session.serving.dispatcher.signals()
        assert core is not None
        batches = {module: core.pipelines[module, "p0"].batch_sizes for module in ("joined", "queries")}
        assert batches == {"joined": {4: 1}, "queries": {2: 2}}


async def test_one_module_may_run_single_calls_while_another_forms_batches() -> None:
    """Eight calls at once: single calls in the module with Elsa, batches in the others."""
    batching = Batching(policy=BatchingPolicy.DEFERRED, modules={"queries": BatchingPolicy.ELSA})
    app = application("mixed").model("queries", outputs=((2, 2),)).model("joined").edge("queries", "joined")
    async with stand(app.slo(2_000).with_spec(batching=batching)) as running:
        answers = await asyncio.gather(*(post(running) for _ in range(8)))
        assert [status for status, _ in answers] == [200] * 8, answers
        assert running.session.serving is not None
        core = running.session.serving.dispatcher.signals()
        assert core is not None
        batches = {module: core.pipelines[module, "p0"].batch_sizes for module in ("queries", "joined")}
        assert batches["queries"] == {1: 8}
        assert sum(batches["joined"].values()) < 8, batches
