"""A batch between two stages when the sending replica is lost."""

import asyncio
import dataclasses
from typing import Any

from tests.runtime.serving.gates import Gate, gated
from tests.runtime.serving.in_process.stand import Stand, post, stand, until
from tests.runtime.serving.plans import application
from tests.runtime.serving.transport.relay import Relay, relay

APP = dataclasses.replace(application("two").model("only"), stages=2)


async def replace(running: Stand, stage: int, way: Relay, **how: Any) -> str:
    """Replace the replica of a stage by one behind a relay. Returns its id."""
    await running.kill(running.replica_of(stage))
    added = await running.add_replica(APP.stage_arguments()[stage], way=way.lead_to, **how)
    await until(lambda: way.connections and running.session.ready, "the frontend has found the new replica")
    return added


async def test_a_batch_that_never_reached_the_next_stage_is_run_again() -> None:
    """The first stage reported it, but it was still in the buffers of a replica that is lost."""
    async with stand(APP) as running, relay() as way:
        way.swallowed.add(1)  # connection 0 is the frontend's
        await replace(running, 1, way)
        answer = asyncio.create_task(post(running))
        await until(lambda: executions(running)[0], "the first stage has reported")
        await until(lambda: way.connections == 2, "the first stage has sent the batch on")
        await running.kill(running.replica_of(0))
        await running.add_replica(APP.stage_arguments()[0])
        assert (await answer)[0] == 200
        assert executions(running) == [2, 1]
        assert running.session.meter.outcomes == {"in_time": 1}


async def test_a_batch_that_was_lost_between_two_stages_is_run_again() -> None:
    """Both replicas run, and the frontend reaches both: only the connection between them is broken."""
    async with stand(APP) as running, relay() as way:
        way.swallowed.add(1)
        await replace(running, 1, way)
        answer = asyncio.create_task(post(running))
        await until(lambda: executions(running)[0], "the first stage has reported")
        await until(lambda: way.connections == 2, "the first stage has sent the batch on")
        way.cut(1)
        assert (await answer)[0] == 200
        assert executions(running) == [2, 1]
        assert running.session.meter.outcomes == {"in_time": 1}


async def test_a_batch_that_the_next_stage_has_received_does_not_need_the_first() -> None:
    """Even if its report was lost."""
    gates: list[Gate] = []
    async with stand(APP, wrap=gated(gates)) as running, relay() as way:
        first = await replace(running, 0, way, wrap=gated(gates))
        way.deaf = True
        answer = asyncio.create_task(post(running))
        gates[2].open.set()
        await until(lambda: gates[1].runs, "the second stage runs the batch")
        await running.kill(first)
        await until(lambda: not running.session.ready, "the frontend has lost the first stage")
        gates[1].open.set()
        assert (await answer)[0] == 200
        assert [gate.runs for gate in gates] == [0, 1, 1]
        assert running.session.meter.outcomes == {"in_time": 1}


async def test_a_next_stage_that_only_the_frontend_can_reach_is_not_used() -> None:
    async with stand(APP) as running, relay() as way:
        await replace(running, 1, way)
        await running.add_replica(APP.stage_arguments()[1])
        await until(lambda: ready(running) == [1, 2], "both replicas of the second stage have joined")
        way.refuse()
        assert (await post(running))[0] == 200
        assert ready(running) == [1, 1]
        assert running.session.meter.outcomes == {"in_time": 1}


def ready(running: Stand) -> list[int]:
    """Replicas of each stage that take batches."""
    return [stage.ready for stage in running.session.signals().stages]


def executions(running: Stand) -> list[int]:
    """Batches that each stage has reported."""
    assert running.session.serving is not None
    return [stage.executions for stage in running.session.serving.dispatcher.signals().stages.values()]
