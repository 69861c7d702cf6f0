"""Whether a Redis answers, asked over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from partita_devtools.machine.ports import free_ports
from partita_operator.engines.kuberay.redis_check import RedisCheck


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """A server that answers PING; its port."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"PING\r\n"
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


HOST: Callable[[int], str] = "127.0.0.1:{}".format


@pytest.mark.parametrize(
    ("answer", "scheme", "want"),
    [
        pytest.param(b"+PONG\r\n", "", "", id="it answers"),
        pytest.param(b"-NOAUTH Authentication required.\r\n", "redis://", "", id="it wants a password"),
        pytest.param(b"", "rediss://", "", id="TLS: a connection is enough"),
        pytest.param(b"-LOADING Redis is loading\r\n", "", "it answered '-LOADING Redis is loading'", id="it starts"),
        pytest.param(b"", "", "it answered ''", id="it hangs up"),
    ],
)
async def test_an_answer_counts(answer: bytes, scheme: str, want: str) -> None:
    async with answering(answer) as port:
        problem = await RedisCheck(f"{scheme}{HOST(port)}").problem()
    assert want in problem
    assert bool(problem) == bool(want)


async def test_a_redis_that_is_away_is_named_with_its_setting() -> None:
    (port,) = free_ports(1)
    problem = await RedisCheck(HOST(port)).problem()
    assert f"the Redis at 127.0.0.1:{port} (kuberay.redisAddress) does not answer" in problem


async def test_one_of_several_is_enough() -> None:
    (away,) = free_ports(1)
    async with answering(b"+PONG\r\n") as port:
        assert await RedisCheck(f"{HOST(away)}, {HOST(port)}").problem() == ""


async def test_without_an_address_nothing_is_asked() -> None:
    assert await RedisCheck("").problem() == ""


async def test_an_unusable_address_is_a_problem() -> None:
    assert "does not answer" in await RedisCheck("127.0.0.1:port").problem()
