"""Replicas keep to what the scheduling core has reserved: the order of batches, and when they are sent on."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.serving.in_process.peer import Peer
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, post, stand, until
from tests.runtime.serving.plans import application

from partita_runtime.scheduling.trace import RecordedCall, read_trace
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.wire import BatchAnswer, Reserve, RunBatch, Taken, Withdraw, tensor_header

TWO = dataclasses.replace(application("two").model("only"), stages=2)
HEADER = tensor_header(SAMPLE.shape, SAMPLE.dtype)
SECOND = 1_000_000


def reserve(batch_id: int, seconds: float, ahead: int = 0, **fields: int) -> Reserve:
    """A reservation that begins some seconds from now, on a clock that is ahead."""
    now = now_micros() + ahead
    start = now + round(seconds * SECOND)
    return Reserve(batch_id=batch_id, sent=now, start=start, latest=start + 60 * SECOND, **fields)


def run(batch_id: int, frontend: str = "f") -> RunBatch:
    return RunBatch(batch_id=batch_id, frontend=frontend, tensors=(HEADER,))


def answered(peer: Peer) -> list[int]:
    return [message.batch_id for message in peer.messages if isinstance(message, BatchAnswer)]


@asynccontextmanager
async def frontends(*names: str) -> AsyncIterator[list[Peer]]:
    """Frontends that are connected to the same replica."""
    async with stand(application("one").model("only")) as running:
        (replica,) = running.directory.announced(running.app.session.key)
        peers = [Peer() for _ in names]
        for peer, name in zip(peers, names, strict=True):
            await peer.join(replica, name)
        yield peers


async def test_a_batch_waits_for_one_that_is_reserved_before_it() -> None:
    async with frontends("f") as (peer,):
        for message in (reserve(1, seconds=30), reserve(2, seconds=60)):
            peer.send(message)
        for batch_id in (2, 1):
            peer.send(run(batch_id), SAMPLE)
        await until(lambda: len(answered(peer)) == 2, "both are answered")
        assert answered(peer) == [1, 2]


@pytest.mark.parametrize("end", [lambda peer: peer.send(Withdraw(batch_id=1)), lambda peer: peer.stream.close()])
async def test_a_batch_of_another_frontend_is_waited_for_until_it_is_withdrawn_or_lost(
    end: Callable[[Peer], None],
) -> None:
    """The clock of the other frontend is ahead by hours."""
    async with frontends("here", "other") as (here, other):
        other.send(reserve(1, seconds=30, ahead=7200 * SECOND))
        here.send(reserve(1, seconds=60))
        here.send(reserve(2, seconds=20))
        for batch_id in (1, 2):
            here.send(run(batch_id, "here"), SAMPLE)
        await until(lambda: answered(here) == [2], "the batch that is reserved first is answered")
        end(other)
        await until(lambda: answered(here) == [2, 1], "the other one is answered, too")


async def test_a_batch_is_not_sent_on_before_the_network_is_free() -> None:
    async with stand(TWO) as running:
        first, second = sorted(running.directory.announced(running.app.session.key), key=lambda r: r.stage)
        sender, receiver = Peer(), Peer()
        await sender.join(first, "f")
        await receiver.join(second, "f")
        free = now_micros() + SECOND // 2
        sender.send(reserve(1, seconds=0, sends_from=free))
        path = (second.address,)
        sender.send(RunBatch(batch_id=1, frontend="f", path=path, tensors=(HEADER,)), SAMPLE)
        await until(lambda: [m for m in receiver.messages if isinstance(m, Taken)], "the second stage has it")
        assert now_micros() >= free
        await until(lambda: answered(receiver) == [1], "it is answered")


async def test_the_time_for_which_a_transfer_is_held_does_not_count_as_its_own(tmp_path: Path) -> None:
    """By its declaration, the network needs a second for each sample."""
    app = dataclasses.replace(TWO, batch_size=1, bandwidth=128 * 8.0)
    settings = FrontendSettings(function_processes=1, trace_directory=str(tmp_path))
    async with stand(app, settings) as running:
        await running.add_replica(app.stage_arguments()[0])
        await until(lambda: [s.ready for s in running.session.signals().stages] == [2, 1], "both senders are there")
        assert (await post(running, samples=2))[0] == 200
        calls = recorded(running, tmp_path)
    reported = {c.arguments[0]: c.arguments[2] for c in calls if c.method == "completed" and c.arguments[1] == 0}
    (_, _, now, _), (batch, _, later, took) = (c.arguments for c in calls if c.method == "transferred")
    assert later - reported[batch] > SECOND // 2, "the first one has the downlink"
    assert took < (later - reported[batch]) // 2
    assert now < later


def recorded(running: Stand, directory: Path) -> list[RecordedCall]:
    """What the session's core was told and has decided, after which it is closed."""
    running.session.close()
    (trace,) = directory.iterdir()
    return [*read_trace(trace.read_text().splitlines())[1]]


async def test_batches_for_which_nothing_is_reserved_run_in_order_of_arrival() -> None:
    async with frontends("f") as (peer,):
        for batch_id in (3, 1, 2):
            peer.send(run(batch_id), np.zeros_like(SAMPLE))
        await until(lambda: len(answered(peer)) == 3, "all are answered")
        assert answered(peer) == [3, 1, 2]
