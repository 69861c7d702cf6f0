"""Load with numbered requests: each must be answered with its own number."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

OUTPUT: Final = "function.number"
"""The tensor that holds the number of the request (`echo.number`)."""
REFUSED: Final = (503, 504)
"""Statuses of an honest refusal: too much to do, no replica, too late."""
FROM_PROXY: Final = (500, 502, 503, 504)
"""What Serve's proxy answers, without our explanation, where a frontend is gone; 500 where one died with it."""
PATIENCE_SECONDS: Final = 30.0
_KEEP_IDLE_S: Final = 3.0
_MOST_EXAMPLES: Final = 10


@dataclass(frozen=True)
class Unanswered:
    """A request that got nothing, or only the proxy's word. Times are seconds of the monotonic clock."""

    sent: float
    ended: float
    what: str

    def is_of(self, outages: Iterable[tuple[float, float]]) -> bool:
        """Whether it was under way while there was no frontend."""
        return any(self.sent <= until and since <= self.ended for since, until in outages)


@dataclass
class LoadAccount:
    """What became of the requests. Each is counted in exactly one of the fields below `sent`."""

    sent: int = 0
    answered: int = 0
    """With its own number and id."""
    refused: Counter[int] = field(default_factory=Counter)
    """By status, with an explanation from the frontend."""
    unanswered: list[Unanswered] = field(default_factory=list)
    """The connection broke, no answer arrived for PATIENCE_SECONDS, or the proxy had no frontend."""
    wrong: int = 0
    """Any other answer, such as that to another request."""
    in_time: int = 0
    """Of those answered, as the client sees it."""
    examples: list[str] = field(default_factory=list)
    """The first of those that were wrong."""

    @property
    def ended(self) -> int:
        """Requests that have ended."""
        return self.answered + self.refused.total() + len(self.unanswered) + self.wrong

    def note(self, example: str) -> None:
        """Keep an example of what must not be."""
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(example)


async def send_all(
    url: str, shape: Sequence[int], schedule: Sequence[float], slo_s: float, account: LoadAccount
) -> None:
    """Send a request at each second of the schedule, whether or not others were answered; wait for the last answer."""
    loop = asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE_S)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    began = loop.time()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http, asyncio.TaskGroup() as requests:
        for number, due in enumerate(schedule):
            await asyncio.sleep(max(0.0, began + due - loop.time()))
            account.sent += 1
            requests.create_task(_send(http, url, shape, number, slo_s, account))


async def _send(
    http: aiohttp.ClientSession, url: str, shape: Sequence[int], number: int, slo_s: float, account: LoadAccount
) -> None:
    size = 1
    for extent in shape:
        size *= extent
    data = [float(number), *[0.0] * (size - 1)]
    tensor = {"name": "input", "shape": [1, *shape], "datatype": "FP32", "data": data}
    loop = asyncio.get_running_loop()
    sent = loop.time()
    try:
        async with http.post(url, json={"id": str(number), "inputs": [tensor]}) as answer:
            status, body = answer.status, await answer.read()
    except (TimeoutError, aiohttp.ClientError) as error:
        account.unanswered.append(Unanswered(sent, loop.time(), f"request {number}: {error!r}"))
        return
    if status == 200 and _is_own(body, number):
        account.answered += 1
        account.in_time += loop.time() - sent <= slo_s
    elif status in REFUSED and _explains(body):
        account.refused[status] += 1
    elif status in FROM_PROXY and not body.startswith(b"{"):
        account.unanswered.append(Unanswered(sent, loop.time(), f"request {number}: {status}, {body[:200]!r}"))
    else:
        account.wrong += 1
        account.note(f"request {number} after {loop.time() - sent:.1f} s: status {status}, {body[:200]!r}")


def _is_own(body: bytes, number: int) -> bool:
    try:
        answer = json.loads(body)
        (data,) = (output["data"] for output in answer["outputs"] if output["name"] == OUTPUT)
        return bool(answer["id"] == str(number) and data == [number])
    except (ValueError, KeyError, TypeError):
        return False


def _explains(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return False
