"""Requests at a steady rate, independent of the answers and, up to a bound, of their delays."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import numpy as np

HEADER_LENGTH = "Inference-Header-Content-Length"
TRANSIENT = ("broken", 500, 502, 503, 504)
"""Answers after which a client retries:

those of Serve's proxy for a killed frontend, and those of the next frontend.
"""


@dataclass
class Load:
    """Results of requests at a steady rate."""

    statuses: Counter[int | str] = field(default_factory=Counter)
    """Answers by HTTP status; `broken` counts connections without an answer."""
    errors: list[str] = field(default_factory=list)
    sent: int = 0
    tried_again: Counter[int | str] = field(default_factory=Counter)
    """Causes of retries."""

    @property
    def answered(self) -> int:
        """Requests with any answer."""
        return sum(count for status, count in self.statuses.items() if status != "broken")


def infer_body(tensor: np.ndarray, name: str = "input") -> tuple[bytes, dict[str, str]]:
    """A binary inference request for one FP32 tensor: body and headers."""
    header = (
        f'{{"inputs":[{{"name":"{name}","datatype":"FP32","shape":{list(tensor.shape)},'
        f'"parameters":{{"binary_data_size":{tensor.nbytes}}}}}]}}'
    ).encode()
    return header + tensor.tobytes(), {HEADER_LENGTH: str(len(header))}


async def steady_load(
    url: str,
    tensor: np.ndarray,
    rate: float,
    enough: Callable[[Load], bool],
    most_seconds: float = 60.0,
    try_again: bool = False,
    at_once: int = 500,
) -> Load:
    """Send `tensor` to the infer endpoint at `url`, `rate` times per second until `enough`; wait for all answers.

    At most `at_once` requests are unanswered at a time: a machine that is too slow for the rate sends fewer. With
    `try_again` each client retries until it gets an answer or `most_seconds` have passed.
    """
    content, headers = infer_body(tensor)
    load = Load()
    loop = asyncio.get_running_loop()

    async def once(client: httpx.AsyncClient) -> tuple[int | str, str]:
        try:
            answer = await client.post(url, content=content, headers=headers)
        except httpx.TransportError as error:
            return "broken", repr(error)
        return answer.status_code, answer.text

    room = asyncio.Semaphore(at_once)

    async def send(client: httpx.AsyncClient) -> None:
        status, text = await once(client)
        while try_again and status in TRANSIENT and loop.time() - started < most_seconds:
            load.tried_again[status] += 1
            await asyncio.sleep(0.05)
            status, text = await once(client)
        load.statuses[status] += 1
        if status != 200:
            load.errors.append(text)
        room.release()

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    started = loop.time()
    async with httpx.AsyncClient(timeout=30, limits=limits) as client, asyncio.TaskGroup() as sending:
        while not enough(load):
            assert loop.time() - started < most_seconds, f"load went on for {most_seconds} s: {load}"
            await room.acquire()
            sending.create_task(send(client))
            load.sent += 1
            await asyncio.sleep(max(0.0, started + load.sent / rate - loop.time()))
    return load
