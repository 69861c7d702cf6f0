"""A load generator with little CPU time: it sends the same bytes again and again on open connections.

`partita_runtime.load.generator` uses an HTTP library that takes several times as much CPU. On a machine that also
serves, this CPU would be missing in what is measured.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

from partita_runtime.load.generator import LoadConfig
from partita_runtime.load.report import NO_CONNECTION, TIMED_OUT, LoadReport, RequestRecord, summarize

_MOST_CONNECTIONS: Final = 1000
_FEWEST_CONNECTIONS: Final = 64
_MOST_AT_ONCE: Final = 16
_TICK_SECONDS: Final = 0.001
"""Resolution of the event loop's timers."""


def run_raw_load(config: LoadConfig) -> LoadReport:
    """Send the schedule, open loop, and wait for the last answer for at most `timeout_s` after the last request.

    Only the first payload is sent. The number of connections is twice the mean rate times the SLO; further requests
    wait for a connection, which is part of their latency.
    """
    records = uvloop.run(_Load(config).run())
    return summarize(records, slo_s=config.slo_s, duration_s=config.duration_s)


class _Load:
    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        url, payload = urlsplit(config.url), config.payloads[0]
        assert url.hostname is not None
        self._host, self._port = url.hostname, url.port or 80
        headers = {"Host": url.netloc, "Content-Length": str(len(payload.body)), **payload.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.request = f"POST {url.path} HTTP/1.1\r\n{lines}\r\n".encode() + payload.body
        self._due = config.schedule.tolist()
        self._sent = [0.0] * len(self._due)
        self._records: list[RequestRecord | None] = [None] * len(self._due)
        self._next = 0
        self._ended = 0
        self._clock: Callable[[], float] = time.monotonic
        self._start = 0.0
        self._free: list[_Connection] = []
        self._waiting: deque[int] = deque()
        self._all_ended = asyncio.Event()

    async def run(self) -> list[RequestRecord]:
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        rate = len(self._due) / self._config.duration_s
        count = min(_MOST_CONNECTIONS, max(_FEWEST_CONNECTIONS, round(2 * rate * self._config.slo_s)))
        for _ in range(count):
            await loop.create_connection(lambda: _Connection(self), self._host, self._port)
        self._start = self._clock()
        self._send_due()
        try:
            async with asyncio.timeout(self._config.duration_s + self._config.timeout_s):
                while self._ended < len(self._due):
                    self._all_ended.clear()
                    await self._all_ended.wait()
        except TimeoutError:
            pass
        late = self._clock() - self._start
        return [
            record or RequestRecord(due, sent, late, TIMED_OUT)
            for record, due, sent in zip(self._records, self._due, self._sent, strict=True)
        ]

    def _send_due(self) -> None:
        """Send a few of the requests that are due, and schedule the rest, which lets answers be read in between."""
        now = self._clock() - self._start
        due, number = self._due, self._next
        while number < len(due) and due[number] <= now + _TICK_SECONDS / 2 and number < self._next + _MOST_AT_ONCE:
            self._sent[number] = now
            if self._free:
                self._free.pop().send(number)
            else:
                self._waiting.append(number)
            number += 1
        self._next = number
        if number < len(due):
            wait = due[number] - now
            asyncio.get_running_loop().call_later(max(_TICK_SECONDS, wait) if wait > 0 else 0, self._send_due)

    def free(self, connection: "_Connection") -> None:
        """A connection is free."""
        if self._waiting:
            connection.send(self._waiting.popleft())
        else:
            self._free.append(connection)

    def lost(self, connection: "_Connection", number: int | None) -> None:
        """A connection is closed, perhaps with a request."""
        if connection in self._free:
            self._free.remove(connection)
        if number is not None:
            self.ended(number, NO_CONNECTION)

    def ended(self, number: int, outcome: str) -> None:
        """A request has ended."""
        now = self._clock() - self._start
        self._records[number] = RequestRecord(self._due[number], self._sent[number], now, outcome)
        self._ended += 1
        if self._ended == len(self._due):
            self._all_ended.set()


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._number: int | None = None
        self._received = b""
        self._transport = asyncio.Transport()
        """Replaced by that of the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost(self, self._number)

    def send(self, number: int) -> None:
        """Send the request."""
        self._number = number
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        self._received = data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = _read_head(data[:end])
        if len(data) < end + head.length:
            return
        self._received = b""
        number, self._number = self._number, None
        if number is not None:
            self._load.ended(number, head.status)
        if head.stays:
            self._load.free(self)
        else:
            self._transport.close()


class _Head(NamedTuple):
    status: str
    length: int
    stays: bool


@lru_cache(maxsize=256)
def _read_head(head: bytes) -> _Head:
    """An answer whose length is not said, such as an error of the proxy's, ends its connection."""
    first, *lines = head.decode("latin-1").lower().splitlines()
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    stays = "content-length" in headers and headers.get("connection") != "close"
    return _Head(first.split()[1], int(headers.get("content-length", 0)), stays)
