"""Requests at a steady rate, whatever comes back and however late."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import numpy as np

HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass
class Load:
    """What became of requests that were sent at a steady rate."""

    statuses: Counter[int | str] = field(default_factory=Counter)
    """Answers by HTTP status; `broken` for connections that gave none."""
    errors: list[str] = field(default_factory=list)
    sent: int = 0

    @property
    def answered(self) -> int:
        """Requests that got an answer, whatever it says."""
        return sum(count for status, count in self.statuses.items() if status != "broken")


def infer_body(tensor: np.ndarray, name: str = "input") -> tuple[bytes, dict[str, str]]:
    """A binary inference request for one FP32 tensor: body and headers."""
    header = (
        f'{{"inputs":[{{"name":"{name}","datatype":"FP32","shape":{list(tensor.shape)},'
        f'"parameters":{{"binary_data_size":{tensor.nbytes}}}}}]}}'
    ).encode()
    return header + tensor.tobytes(), {HEADER_LENGTH: str(len(header))}


async def steady_load(
    url: str, tensor: np.ndarray, rate: float, enough: Callable[[Load], bool], most_seconds: float = 60.0
) -> Load:
    """Send `tensor` to the infer endpoint at `url`, `rate` times a second until `enough`; wait for all answers."""
    content, headers = infer_body(tensor)
    load = Load()

    async def send(client: httpx.AsyncClient) -> None:
        try:
            answer = await client.post(url, content=content, headers=headers)
        except httpx.TransportError as error:
            load.statuses["broken"] += 1
            load.errors.append(repr(error))
            return
        load.statuses[answer.status_code] += 1
        if not answer.is_success:
            load.errors.append(answer.text)

    loop = asyncio.get_running_loop()
    limits = httpx.Limits(max_connections=500, max_keepalive_connections=500)
    started = loop.time()
    async with httpx.AsyncClient(timeout=30, limits=limits) as client, asyncio.TaskGroup() as sending:
        while not enough(load):
            assert loop.time() - started < most_seconds, f"load went on for {most_seconds} s: {load}"
            sending.create_task(send(client))
            load.sent += 1
            await asyncio.sleep(max(0.0, started + load.sent / rate - loop.time()))
    return load
