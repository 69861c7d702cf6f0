"""Whether a Redis answers and accepts the password, asked over real sockets, and of a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.operator.engines.kuberay.redis_server import running_redis

from partita_devtools.machine.ports import free_ports
from partita_operator.engines.kuberay.redis_check import RedisCheck
from partita_operator.settings.kuberay import KubeRaySettings

PING = b"*1\r\n$4\r\nPING\r\n"
PASSWORD = "s3cr$t#;&|<>(~!)"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """A server that answers PING; its port."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(PING)) == PING
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


HOST: Callable[[int], str] = "127.0.0.1:{}".format


async def problem(address: str, namespace: str = "vision", **settings: Any) -> str:
    given = {"image": "x", "redisAddress": address, **settings}
    return await RedisCheck(KubeRaySettings.model_validate(given)).problem(namespace)


@pytest.mark.parametrize(
    ("answer", "scheme", "want"),
    [
        pytest.param(b"+PONG\r\n", "", "", id="it answers"),
        pytest.param(b"-NOPERM no permissions\r\n", "redis://", "", id="it forbids the command"),
        pytest.param(b"", "rediss://", "", id="TLS: a connection is enough"),
        pytest.param(b"-LOADING Redis is loading\r\n", "", "it answered '-LOADING Redis is loading'", id="it starts"),
        pytest.param(b"", "", "it answered ''", id="it hangs up"),
    ],
)
async def test_an_answer_counts(answer: bytes, scheme: str, want: str) -> None:
    async with answering(answer) as port:
        found = await problem(f"{scheme}{HOST(port)}")
    assert want in found
    assert bool(found) == bool(want)


@pytest.mark.parametrize(
    ("requires", "settings", "want"),
    [
        pytest.param(PASSWORD, {"redisPassword": PASSWORD}, "", id="the password is right"),
        pytest.param("", {}, "", id="no password"),
        pytest.param(PASSWORD, {"redisSecret": "redis"}, "", id="only the heads know the password"),
        pytest.param(
            PASSWORD, {"redisPassword": "another"}, "refuses the password of kuberay.redisPasswordSecret", id="wrong"
        ),
        pytest.param(
            "", {"redisPassword": PASSWORD}, "refuses the password of kuberay.redisPasswordSecret", id="it has none"
        ),
        pytest.param(
            PASSWORD, {}, "requires a password: name its Secret in kuberay.redisPasswordSecret", id="nobody knows it"
        ),
    ],
)
async def test_a_real_redis_says_what_is_wrong_with_the_password(
    requires: str, settings: dict[str, str], want: str, tmp_path: Path
) -> None:
    with running_redis(tmp_path, requires or '""') as redis:
        found = await problem(redis.address, **settings)
    assert want in found
    assert bool(found) == bool(want)
    assert PASSWORD not in found


async def test_a_redis_that_is_away_is_named_with_its_setting() -> None:
    (port,) = free_ports(1)
    found = await problem(HOST(port))
    assert f"the Redis at 127.0.0.1:{port} (kuberay.redisAddress) does not answer" in found


async def test_each_namespace_has_the_redis_of_its_address() -> None:
    async with answering(b"+PONG\r\n") as port:
        check = RedisCheck(KubeRaySettings(image="x", redis_address=f"{{namespace}}:{port}"))
        assert await check.problem("127.0.0.1") == ""
        assert "127.0.0.2" in await check.problem("127.0.0.2")


async def test_one_of_several_is_enough() -> None:
    (away,) = free_ports(1)
    async with answering(b"+PONG\r\n") as port:
        assert await problem(f"{HOST(away)}, {HOST(port)}") == ""


async def test_without_an_address_nothing_is_asked() -> None:
    assert await problem("") == ""


async def test_an_unusable_address_is_a_problem() -> None:
    assert "does not answer" in await problem("127.0.0.1:port")
