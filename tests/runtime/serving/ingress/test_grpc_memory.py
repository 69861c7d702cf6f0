"""Incomplete messages share a memory limit, over gRPC as over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tests.runtime.serving.in_process.stand import Stand, stand, until
from tests.runtime.serving.plans import application
from tritonclient.utils import InferenceServerException

from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.session.settings import FrontendSettings

MOST = 4 << 20
SAMPLE = np.zeros((1, 512, 512), np.float32)
"""Longer than the passed part of a connection, and than HTTP/2's window before a message is read."""
THROUGH = 256 << 10
ALONE = ("grpc.use_local_subchannel_pool", 1)


@contextlib.asynccontextmanager
async def narrow_way(to: str, opened: asyncio.Event) -> AsyncIterator[str]:
    """Forwards connections to another address. It passes only a limited number of bytes of each until it is opened."""
    host, port = to.split(":")
    passing: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None) -> None:
        passed = 0
        try:
            while content := await reader.read(1 << 14):
                passed += len(content)
                if most is not None and passed > most:
                    await opened.wait()
                writer.write(content)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        away_reader, away_writer = await asyncio.open_connection(host, int(port))
        passing.add(asyncio.create_task(forward(reader, away_writer, THROUGH)))
        passing.add(asyncio.create_task(forward(away_reader, writer, None)))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            yield "{}:{}".format(*server.sockets[0].getsockname())
        finally:
            for task in passing:
                task.cancel()


@contextlib.asynccontextmanager
async def slowly_reached(
    opened: asyncio.Event, body_seconds: float
) -> AsyncIterator[tuple[Stand, triton.InferenceServerClient, triton.InferenceServerClient]]:
    """A session, and two clients that reach it through the limited connection, each on its own."""
    settings = FrontendSettings(
        function_processes=1, max_request_bytes=MOST, max_reading_bytes=MOST, body_seconds=body_seconds
    )
    app = application("large").model("only", input=SAMPLE.shape[1:]).slo(60_000)
    async with stand(app, settings) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with (
            narrow_way(str(running.session.addresses.grpc), opened) as way,
            triton.InferenceServerClient(way, channel_args=[ALONE]) as one,
            triton.InferenceServerClient(way, channel_args=[ALONE]) as other,
        ):
            yield running, one, other
        await endpoint.close()


async def infer(client: triton.InferenceServerClient) -> triton.InferResult:
    tensor = triton.InferInput("input", [*SAMPLE.shape], "FP32")
    tensor.set_data_from_numpy(SAMPLE)
    return await client.infer("large", [tensor])


async def test_an_incomplete_message_reserves_memory_and_the_next_one_is_refused() -> None:
    opened = asyncio.Event()
    async with slowly_reached(opened, body_seconds=60.0) as (running, one, other):
        early = asyncio.create_task(infer(one))
        await until(lambda: running.session.bodies.taken == MOST, "room is kept for its message")
        with pytest.raises(InferenceServerException, match="bytes in all are being read") as refused:
            await infer(other)
        assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        opened.set()
        assert (await early).as_numpy("only") is not None
        await until(lambda: running.session.bodies.taken == 0, "nothing is kept any more")


async def test_the_time_for_a_message_is_limited() -> None:
    async with slowly_reached(asyncio.Event(), body_seconds=0.1) as (running, one, _):
        with pytest.raises(InferenceServerException, match="did not arrive within") as refused:
            await infer(one)
        assert refused.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert running.session.bodies.taken == 0
