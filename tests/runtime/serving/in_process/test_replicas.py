"""Replicas that start, end, fail and change under load. Every request gets exactly one answer."""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.serving.gates import Gate, gated
from tests.runtime.serving.in_process.peer import Peer
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, post, stand, until
from tests.runtime.serving.load import Load, steady_load
from tests.runtime.serving.plans import Application, application

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.telemetry.signals import Outcome
from partita_runtime.serving.transport.streams import connect
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Hello,
    PeerAddress,
    Reserve,
    RunBatch,
    StageMessage,
    Welcome,
    Withdraw,
    tensor_header,
)
from partita_runtime.simulation.trace_replay import Replay, replay

FAST_SWITCH = FrontendSettings(function_processes=1, switch_patience_seconds=0.5)


def two_stages(name: str = "two") -> Application:
    """A model in two stages, two replicas each."""
    return dataclasses.replace(application(name).model("only"), stages=2, replicas=2)


def load(running: Stand, count: int, rate: float = 40) -> asyncio.Task[Load]:
    url = f"http://{running.url}/v2/models/{running.app.name}/infer"
    return asyncio.create_task(steady_load(url, SAMPLE, rate, lambda sent: sent.sent >= count))


async def test_a_replica_is_lost_with_a_batch() -> None:
    gates: list[Gate] = []
    async with stand(application("one").model("only"), wrap=gated(gates)) as running:
        (first,) = running.workers
        answer = asyncio.create_task(post(running))
        await until(lambda: gates[0].runs, "the batch runs")
        await running.kill(first)
        gates[0].open.set()
        (arguments,) = running.app.stage_arguments()
        await running.add_replica(arguments)
        assert (await answer)[0] == 200
        assert running.session.meter.outcomes == {"in_time": 1}


async def test_a_replica_is_lost_and_no_other_is_in_time() -> None:
    gates: list[Gate] = []
    async with stand(application("one").model("only").slo(1500), wrap=gated(gates)) as running:
        (first,) = running.workers
        answer = asyncio.create_task(post(running))
        await until(lambda: gates[0].runs, "the batch runs")
        await running.kill(first)
        gates[0].open.set()
        status, message = await answer
        assert status == 503, message
        assert "only" in message
        health = await running.client.get("/v2/health/ready")
        assert (health.status_code, health.json()) == (503, {"ready": False})


async def test_a_replica_hangs() -> None:
    gates: list[Gate] = []
    async with stand(application("one").model("only").slo(500), wrap=gated(gates)) as running:
        status, message = await post(running)
        assert (status, "was lost" in message) == (503, True), message
        gates[0].open.set()
        await until(lambda: running.session.ready, "the replica is connected to again")


async def test_a_replica_hangs_while_the_directory_does_not_answer() -> None:
    gates: list[Gate] = []
    async with stand(application("one").model("only").slo(500), wrap=gated(gates)) as running:
        running.directory.answers.clear()
        status, message = await post(running)
        assert (status, "was lost" in message) == (503, True), message
        gates[0].open.set()


@pytest.mark.parametrize("stage", [0, 1])
async def test_replicas_are_lost_under_load(stage: int) -> None:
    async with stand(two_stages()) as running:
        loading = load(running, 120)
        await until(lambda: running.session.meter.outcomes[Outcome.IN_TIME] > 20, "load is on")
        await running.kill(running.replica_of(stage))
        done = await loading
        assert done.statuses == {200: 120}, done.errors
        assert running.session.meter.outcomes == {"in_time": 120}


async def test_failed_batches_run_once_more() -> None:
    gates: list[Gate] = []
    async with stand(application("one").model("only"), wrap=gated(gates, "out of memory")) as running:
        gates[0].open.set()
        status, message = await post(running)
        assert (status, "module 'only' failed: RuntimeError: out of memory" in message) == (500, True), message
        assert gates[0].runs == 2
        gates[0].error = None
        assert (await post(running))[0] == 200


async def test_replicas_join_and_drain_under_load() -> None:
    app = two_stages()
    async with stand(app) as running:
        old = [*running.workers]
        loading = load(running, 120)
        await until(lambda: running.session.meter.outcomes[Outcome.IN_TIME] > 20, "load is on")
        await running.add_replicas(app)
        await until(lambda: ready(running) == [4, 4], "the new replicas joined")
        await asyncio.gather(*(running.retire(replica) for replica in old))
        assert ready(running) == [2, 2]
        done = await loading
        assert done.statuses == {200: 120}, done.errors


def ready(running: Stand) -> list[int]:
    return [stage.ready for stage in running.session.signals().stages]


async def test_a_new_plan_takes_over_under_load() -> None:
    app = two_stages()
    after = app.planned("plan-2", stages=1, batch_size=4)
    async with stand(app, FAST_SWITCH) as running:
        old = [*running.workers]
        loading = load(running, 160)
        await until(lambda: running.session.meter.outcomes[Outcome.IN_TIME] > 20, "load is on")
        running.session.reconfigure(after.epoch)
        assert running.session.signals().next_plan == "plan-2"
        await running.add_replicas(after)
        await running.serves("plan-2")
        await asyncio.gather(*(running.retire(replica) for replica in old))
        done = await loading
        assert done.statuses == {200: 160}, done.errors
        signals = running.session.signals()
        assert (signals.plan, signals.next_plan, signals.message) == ("plan-2", None, "")


async def test_requests_finish_on_the_version_of_the_session_that_they_started_with() -> None:
    gates: list[Gate] = []
    before = application("one").model("only", input=(2, 2), outputs=((2,),))
    after = application("one").model("only", input=(2, 2), outputs=((7,),)).planned("plan-2")
    async with stand(before, FAST_SWITCH, wrap=gated(gates)) as running:
        early = asyncio.create_task(post(running))
        await until(lambda: gates[0].runs, "the early request runs")
        running.session.reconfigure(after.epoch)
        await running.add_replicas(after)
        await until(lambda: running.session.serving and running.session.serving.epoch == after.epoch, "plan-2 serves")
        status, late = await post(running)
        assert (status, '"shape":[1,7]' in late) == (200, True), late
        assert running.session.signals().plan == "plan-1", "requests are still being finished on it"
        gates[0].open.set()
        status, text = await early
        assert (status, '"shape":[1,2]' in text) == (200, True), text
        await running.serves("plan-2")


async def test_another_slo_takes_effect_with_the_same_replicas() -> None:
    app = application("one").model("only")
    async with stand(app, FAST_SWITCH) as running:
        assert (await load(running, 5)).statuses == {200: 5}
        running.session.reconfigure(app.slo(1).epoch)
        await until(lambda: running.session.signals().next_plan is None, "the frontend has moved on")
        assert (await post(running))[0] == 504
        signals = running.session.signals()
        assert signals.outcomes == {Outcome.IN_TIME: 5, Outcome.TOO_LATE: 1}
        assert [(stage.ready, stage.bad_rate) for stage in signals.stages] == [(1, 1.0)]


async def test_a_plan_without_all_its_replicas_serves_after_a_while() -> None:
    app = application("one").model("only")
    after = app.planned("plan-2", replicas=2)
    async with stand(app, FAST_SWITCH) as running:
        running.session.reconfigure(after.epoch)
        await running.add_replica(after.stage_arguments()[0])
        await running.serves("plan-2")
        assert ready(running) == [1]


async def test_a_plan_whose_function_cannot_be_loaded_does_not_serve() -> None:
    app = application("one").model("only")
    after = app.function("f", "no_such_function").edge("only", "f").planned("plan-2")
    async with stand(app, FAST_SWITCH) as running:
        running.session.reconfigure(after.epoch)
        await running.add_replicas(after)
        await until(lambda: "no_such_function" in running.session.signals().message, "the frontend says why")
        assert running.session.signals().plan == "plan-1"
        assert (await post(running))[0] == 200


async def test_nothing_is_served_before_the_first_plan() -> None:
    async with stand(two_stages(), serving=False) as running:
        running.session.close()
        status, message = await post(running)
        assert (status, "no plan is being served yet" in message) == (503, True)


async def test_the_work_of_a_client_that_leaves_is_cancelled() -> None:
    gates: list[Gate] = []
    app = application("one").model("only", beta_micros=1_500_000).planned("p", batch_size=1)
    async with stand(app, wrap=gated(gates)) as running:
        gates[0].open.set()
        first = asyncio.create_task(post(running))
        await until(lambda: gates[0].runs, "the first request runs")
        second = asyncio.create_task(post(running))
        await until(lambda: running.session.meter.arrived == 2, "the second request is queued")
        second.cancel()
        await until(lambda: running.session.meter.outcomes[Outcome.CANCELLED] == 1, "the second request is forgotten")
        assert (await first)[0] == 200
        assert (await post(running))[0] == 200
        assert gates[0].runs == 2


async def test_a_replica_does_not_work_for_a_frontend_that_is_gone() -> None:
    gates: list[Gate] = []
    app = application("one").model("only").planned("p", batch_size=1)
    async with stand(app, wrap=gated(gates)) as running:
        (replica,) = running.directory.announced(app.session.key)
        here, gone = Peer(), Peer()
        for peer, name in ((gone, "gone"), (here, "here")):
            await peer.join(replica, name)
        header = tensor_header(SAMPLE.shape, SAMPLE.dtype)
        for peer, batch_id in ((here, 1), (gone, 2), (here, 3)):
            peer.send(RunBatch(batch_id=batch_id, frontend=peer.name, tensors=(header,)), SAMPLE)
        await until(lambda: gates[0].runs, "the first batch runs")
        gone.stream.close()
        await until(lambda: gone.is_lost, "the stream is closed")
        gates[0].open.set()
        await until(lambda: len(here.messages) == 3, "both other batches are answered")
        assert [message.kind for message in here.messages] == ["welcome", "answer", "answer"]
        assert gates[0].runs == 2


async def test_health_of_a_replica() -> None:
    (arguments,) = application("one").model("only").stage_arguments()
    worker = StageWorker(build_executor(arguments.build), arguments.build.max_batch)
    with pytest.raises(RuntimeError, match="executor has ended"):
        worker.check_health()
    await worker.start("127.0.0.1")
    worker.check_health()
    await worker.stop()
    await until(lambda: not healthy(worker), "the executor has ended")


def healthy(worker: StageWorker) -> bool:
    try:
        worker.check_health()
    except RuntimeError:
        return False
    return True


WRONG = tensor_header((1, 3), np.dtype(np.float32))
FITS = tensor_header(SAMPLE.shape, SAMPLE.dtype)
HELLO = Hello(frontend="f")


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([RunBatch(batch_id=1, frontend="f", tensors=(FITS,))], id="no hello"),
        pytest.param([HELLO, RunBatch(batch_id=1, frontend="f", tensors=(WRONG,))], id="another shape"),
        pytest.param([HELLO, RunBatch(batch_id=1, frontend="f", tensors=())], id="no tensors"),
        pytest.param([HELLO, Welcome()], id="a message that is not for replicas"),
        pytest.param([HELLO, HELLO], id="a second hello"),
        pytest.param([Hello(), Withdraw(batch_id=1)], id="a replica that withdraws a batch"),
        pytest.param([Hello(), Reserve(batch_id=1, sent=0, start=0, latest=0)], id="a replica that reserves"),
    ],
)
async def test_replicas_disconnect_from_misbehaving_peers(messages: list[StageMessage]) -> None:
    async with stand(application("one").model("only")) as running:
        (replica,) = running.directory.announced(running.app.session.key)
        peer = Peer()
        stream = await connect(replica.address, STAGE_DIALECT, peer)
        for message in messages:
            tensors = getattr(message, "tensors", ())
            stream.send(message, [np.zeros(t.shape, np.float32) for t in tensors])
        await until(lambda: peer.is_lost, "the replica closes the stream")
        assert {message.kind for message in peer.messages} <= {"welcome"}
        assert (await post(running))[0] == 200, "others are still served"


async def test_a_replica_reports_that_the_next_stage_cannot_be_reached() -> None:
    async with stand(two_stages()) as running:
        replicas = running.directory.announced(running.app.session.key)
        peer = Peer()
        await peer.join(next(r for r in replicas if r.stage == 0), "f")
        nowhere = PeerAddress(host="127.0.0.1", port=1, token="t")
        peer.send(RunBatch(batch_id=9, frontend="f", path=(nowhere,), tensors=(FITS,)), SAMPLE)
        await until(lambda: len(peer.messages) == 3, "the replica reports")
        assert [message.kind for message in peer.messages] == ["welcome", "report", "lost"]
        assert "127.0.0.1:1 cannot be reached" in getattr(peer.messages[-1], "reason", "")


async def test_signals_follow_the_load() -> None:
    app = application("one").model("only", beta_micros=14_000, alpha_micros=1).planned("p", batch_size=1)
    async with stand(app) as running:
        idle = running.session.signals()
        assert (idle.offered_rate, idle.bad_rate) == (0.0, 0.0)
        assert idle.idle_fraction == pytest.approx(1.0, abs=0.05)
        assert (await load(running, 60)).statuses == {200: 60}
        busy = running.session.signals()
        (stage,) = busy.stages
        assert busy.outcomes == {"in_time": 60}
        assert busy.batch_sizes == {1: 60}
        assert stage.idle_fraction < idle.idle_fraction - 0.05
        assert stage.predicted_micros == pytest.approx(14_001)
        assert stage.actual_micros >= 14_000
        assert 0 < busy.p50_ms <= busy.p99_ms


async def test_differences_of_replicas_from_the_plan_are_reported() -> None:
    def warned(built: BuiltExecutor) -> BuiltExecutor:
        return dataclasses.replace(built, warnings=("there is no CUDA device here",))

    async with stand(two_stages(), wrap=warned) as running:
        assert running.session.signals().warnings == (
            "only/p0/0: there is no CUDA device here.",
            "only/p0/1: there is no CUDA device here.",
        )


async def test_decisions_of_the_core_can_be_replayed(tmp_path: Path) -> None:
    settings = FrontendSettings(function_processes=1, trace_directory=str(tmp_path))
    async with stand(two_stages(), settings) as running:
        assert (await load(running, 20)).statuses == {200: 20}
        await running.kill(next(iter(running.workers)))
    (replayed,) = traces_replayed(tmp_path)
    assert replayed.difference is None
    assert replayed.decisions > 0


def traces_replayed(directory: Path) -> list[Replay]:
    return [replay(trace.read_text().splitlines()) for trace in directory.iterdir()]


def test_dtypes_of_cuts_are_those_of_the_plan() -> None:
    first, second = (arguments.build for arguments in dataclasses.replace(two_stages(), replicas=1).stage_arguments())
    assert first.emulation is not None
    assert second.emulation is not None
    assert first.emulation.outputs == second.emulation.inputs == (TensorSpec(shape=(64,), dtype=DType.FP16),)


async def test_it_reports_whether_all_replicas_can_be_moved() -> None:
    async with stand(two_stages()) as running:
        announced = running.directory.announced(running.session.key)
        assert len(announced) == 4
        for announcement in announced:
            assert not running.session.signals().can_make_place, "one replica of an older version remains"
            running.directory.announce(announcement.model_copy(update={"can_make_place": True}))
        await until(lambda: running.session.signals().can_make_place, "all can")
