"""Strangers that connect to replicas and coordinators: they are disconnected, and cost little until then."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.runtime.serving.transport.authority import Authority, client_context, write
from tests.security.listeners import Target, a_coordinator, a_replica

from partita_runtime.serving.central.messages import RegisterReporter
from partita_runtime.serving.transport import reception
from partita_runtime.serving.transport.mutual_tls import MutualTls
from partita_runtime.serving.transport.transport import TCP
from partita_runtime.serving.transport.wire import encode

OWN = Authority.new()
TARGETS = {"replica": a_replica, "coordinator": a_coordinator}


@pytest.fixture(
    params=[pytest.param((name, tls), id=f"{name}{' with TLS' * tls}") for name in TARGETS for tls in (False, True)]
)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    """With TLS, strangers have a certificate."""
    name, tls = request.param
    files = write(tmp_path, [OWN], OWN.issue())
    async with TARGETS[name](MutualTls(files) if tls else TCP) as made:
        made.tls = client_context(files) if tls else None
        yield made


PREFIX_OF_16_MIB = b"PTA8" + (16 * 1024 * 1024).to_bytes(4, "little") + bytes(8)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(lambda target: b"x" * len(target.token), id="another token"),
        pytest.param(lambda target: "é".encode() * len(target.token), id="a token that is not ASCII"),
        pytest.param(lambda target: b"\xff" * len(target.token), id="a token that is not text"),
        pytest.param(lambda target: target.token[:-1] + b"x", id="a token that is nearly right"),
        pytest.param(lambda target: target.hello() + bytes(32), id="a message without a token"),
        pytest.param(lambda _: PREFIX_OF_16_MIB + bytes(100_000), id="a large header without a token"),
        pytest.param(lambda _: b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n", id="another protocol"),
    ],
)
async def test_without_the_token_nothing_is_read(
    target: Target, sent: Callable[[Target], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with target.connected(sent(target)) as stranger:
        assert await stranger.is_closed()
    await target.serves()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_peer_that_does_not_introduce_itself_is_disconnected(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "INTRODUCTION_SECONDS", 0.3)
    async with (
        target.connected() as silent,
        target.connected() as slow,
        target.connected(target.token) as nameless,
        target.connected(target.token) as slower,
    ):
        assert await silent.is_closed()
        assert await nameless.is_closed()
        await slow.drip(target.token)
        await slower.drip(target.hello())
    await target.serves()


async def test_peers_that_have_introduced_themselves_stay(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "INTRODUCTION_SECONDS", 0.3)
    async with target.peer("peer") as peer:
        async with target.connected() as silent:  # it is disconnected later than the peer would be
            assert await silent.is_closed()
        assert not peer.reader.at_eof()


async def test_strangers_replace_each_other_and_not_peers(target: Target) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(target.peer("peer"))
        strangers = [await stack.enter_async_context(target.connected()) for _ in range(reception.MOST_STRANGERS + 20)]
        for stranger in strangers[:20]:
            assert await stranger.is_closed()
        await target.serves()
        assert [other.reader.at_eof() for other in (peer, *strangers[-reception.MOST_STRANGERS + 1 :])] == [
            False
        ] * reception.MOST_STRANGERS


async def test_the_number_of_peers_is_bounded(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    async with target.peer("one") as one:
        monkeypatch.setattr(reception, "MOST_PEERS", 1)
        async with target.connected(target.token + target.hello("two")) as beyond:
            assert await beyond.is_closed()
        assert not one.reader.at_eof()
        monkeypatch.undo()
        await target.serves()


async def test_many_strangers_are_one_line_of_the_log(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        async with target.connected(b"x" * len(target.token)) as stranger:
            assert await stranger.is_closed()
    refused = [record.message for record in caplog.records if "is refused" in record.message]
    assert refused == ["a connection is refused: it does not begin with this process's token"]


async def test_a_reporter_of_another_session_is_refused() -> None:
    async with a_coordinator() as target:
        report = b"".join(encode(RegisterReporter(session="default/another")))
        async with target.connected(target.token + report) as peer:
            assert await peer.is_closed()
