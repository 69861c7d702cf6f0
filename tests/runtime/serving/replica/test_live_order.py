"""Replicas in separate processes run batches in the order, and send them at the times, that the core has reserved."""

import asyncio
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.runtime.serving.in_process.stand import Stand, post, stand, until
from tests.runtime.serving.plans import Application, application
from tests.runtime.serving.replica.replica_process import replica_process
from tests.runtime.serving.transport.relay import Relay, relay

from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.trace import RecordedCall, read_trace
from partita_runtime.serving.session.settings import FrontendSettings


def two_stages(stage_millis: int) -> Application:
    """Batches of one sample. By its declaration, the network needs 50 ms for each."""
    model = application("live").model("only", alpha_micros=0, beta_micros=2000 * stage_millis)
    return dataclasses.replace(model, stages=2, batch_size=1, bandwidth=128 * 8 / 0.05).slo(60_000)


@contextlib.asynccontextmanager
async def processes(
    app: Application, directory: Path, clocks: Sequence[Sequence[float]], way: Relay | None = None
) -> AsyncIterator[Stand]:
    """A session with a replica for each of the clocks of each stage; `way` leads to the first one of the last stage."""
    settings = FrontendSettings(function_processes=1, trace_directory=str(directory))
    arguments = app.stage_arguments()
    async with stand(app, settings) as running, contextlib.AsyncExitStack() as stack:
        here = [*running.workers]
        for stage, ahead in enumerate(clocks):
            for number, seconds in enumerate(ahead):
                process = await stack.enter_async_context(replica_process(arguments[stage], clock_seconds=seconds))
                last = stage == len(clocks) - 1 and number == 0
                address = way.lead_to(process.address) if way is not None and last else process.address
                running.announce(arguments[stage], address)
        counts = [len(ahead) + 1 for ahead in clocks]
        await until(lambda: [stage.ready for stage in running.session.signals().stages] == counts, "all have joined")
        for replica in here:
            await running.kill(replica)
        yield running


def recorded(running: Stand, directory: Path) -> list[RecordedCall]:
    """What the session's core was told and has decided, after which it is closed."""
    running.session.close()
    (trace,) = directory.iterdir()
    return [*read_trace(trace.read_text().splitlines())[1]]


def check(calls: Sequence[RecordedCall]) -> dict[str, list[int]]:
    """Compare with the core's decisions; the batches of each worker, in the order in which they ran."""
    dispatches = {d.batch_id: d for call in calls for d in call.decided if isinstance(d, Dispatch)}
    reserved: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for dispatch in dispatches.values():
        for worker, start in zip(dispatch.path, dispatch.starts, strict=True):
            reserved[worker].append((start, dispatch.batch_id))
    live: defaultdict[str, list[int]] = defaultdict(list)
    left: set[int] = set()
    for call in calls:
        if call.method == "completed":
            batch_id, stage, _, _ = call.arguments
            live[dispatches[batch_id].path[stage]].append(batch_id)
            assert (batch_id in left) == (stage == 1), "the stages are in order"
            left.add(batch_id)
        elif call.method == "transferred":
            batch_id, stage, now, _ = call.arguments
            assert now >= dispatches[batch_id].links_free[stage - 1], "the network was reserved for another batch"
    assert live == {worker: [batch for _, batch in sorted(starts)] for worker, starts in reserved.items()}
    return dict(live)


async def test_the_live_order_is_that_of_the_core(tmp_path: Path) -> None:
    """The clocks of the replicas differ by days."""
    async with processes(two_stages(stage_millis=300), tmp_path, ((0.0, 1e5), (-0.5, 0.5))) as running:
        assert (await post(running, samples=8))[0] == 200
        calls = recorded(running, tmp_path)
    assert [len(batches) for batches in check(calls).values()] == [4, 4, 4, 4]


async def test_a_batch_that_overtakes_another_one_on_the_network_runs_after_it(tmp_path: Path) -> None:
    passed = asyncio.Event()

    async def hold(content: bytes) -> None:
        if b'{"kind":"batch","batch_id":0,' in content:
            await passed.wait()
        elif b'{"kind":"batch","batch_id":1,' in content:
            asyncio.get_running_loop().call_soon(passed.set)

    async with relay() as way:
        way.hold = hold
        async with processes(two_stages(stage_millis=1500), tmp_path, ((0.0, 0.0), (0.0,)), way) as running:
            assert (await post(running, samples=2))[0] == 200
            calls = recorded(running, tmp_path)
    assert passed.is_set()
    assert [0, 1] in check(calls).values()
