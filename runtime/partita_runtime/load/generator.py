"""Sends requests on a schedule and records how each ends."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np
from numpy.typing import NDArray

from partita_runtime.load.report import (
    ANSWERED,
    NO_CONNECTION,
    TIMED_OUT,
    LoadReport,
    RequestRecord,
    summarize,
)
from partita_runtime.serving.protocol.inference_client import Payload

# Servers close idle connections after 5 s or more; the client closes them earlier.
_KEEP_IDLE_S = 3.0


@dataclass(frozen=True)
class LoadConfig:
    """The requests, their target and their times."""

    url: str
    """URL of the infer endpoint."""
    payloads: Sequence[Payload]
    """Requests to send, in turn."""
    schedule: NDArray[np.float64]
    """Seconds from the start at which requests are sent, ascending."""
    duration_s: float
    """Length of the schedule; the last request may be earlier."""
    slo_s: float
    timeout_s: float = 30.0
    """A request fails if it has no answer after this time."""

    def __post_init__(self) -> None:
        if not self.payloads:
            raise ValueError("no payload to send; give at least one payload")
        if self.duration_s <= 0:
            raise ValueError(f"the load must last longer than {self.duration_s} s")
        if self.timeout_s < self.slo_s:
            raise ValueError(f"a timeout of {self.timeout_s} s would cut off answers within the SLO of {self.slo_s} s")
        if self.schedule.size and (np.diff(self.schedule) < 0).any():
            raise ValueError("the schedule must ascend")
        if self.schedule.size and not 0 <= self.schedule[0] <= self.schedule[-1] <= self.duration_s:
            raise ValueError(f"the schedule must lie between 0 and the duration of {self.duration_s} s")


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    elapsed_s: float
    sent: int
    ended: int
    good: int

    @property
    def pending(self) -> int:
        """Requests that wait for their answers."""
        return self.sent - self.ended


@dataclass(frozen=True)
class LoadRun:
    """The result of a run: every request in the order of the schedule, and the summary."""

    records: tuple[RequestRecord, ...]
    report: LoadReport


async def run_load(config: LoadConfig, on_progress: Callable[[Progress], None] | None = None) -> LoadRun:
    """Send the requests of the schedule and wait for the last answer.

    Open loop: a request is sent at its time, whether or not earlier ones were answered. `on_progress` is called
    about once per second.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE_S),
        timeout=aiohttp.ClientTimeout(total=config.timeout_s),
    ) as http:
        run = _Run(config, http)
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(run.report_progress(on_progress)) if on_progress else None
            await run.send_all()
            if reporter is not None and on_progress is not None:
                reporter.cancel()
                on_progress(run.progress())
    records = tuple(run.records[i] for i in range(len(config.schedule)))
    return LoadRun(records, summarize(records, slo_s=config.slo_s, duration_s=config.duration_s))


@dataclass
class _Run:
    config: LoadConfig
    http: aiohttp.ClientSession
    records: dict[int, RequestRecord] = field(default_factory=dict)
    sent: int = 0
    good: int = 0

    def __post_init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()

    def elapsed(self) -> float:
        return self._clock() - self._start

    async def send_all(self) -> None:
        async with asyncio.TaskGroup() as requests:
            for index, due in enumerate(self.config.schedule.tolist()):
                # Also if it is late: the sleep lets other tasks run.
                await asyncio.sleep(max(0.0, due - self.elapsed()))
                self.sent += 1
                requests.create_task(self._send(index, due))

    async def _send(self, index: int, due: float) -> None:
        payload = self.config.payloads[index % len(self.config.payloads)]
        sent = self.elapsed()
        try:
            url = payload.url or self.config.url
            async with self.http.post(url, data=payload.body, headers=payload.headers) as answer:
                await answer.read()
                outcome = ANSWERED if answer.status == 200 else str(answer.status)
        except TimeoutError:
            outcome = TIMED_OUT
        except aiohttp.ClientError:
            outcome = NO_CONNECTION
        record = RequestRecord(due, sent, self.elapsed(), outcome)
        self.records[index] = record
        self.good += record.is_good(self.config.slo_s)

    async def report_progress(self, on_progress: Callable[[Progress], None]) -> None:
        while True:
            await asyncio.sleep(1.0)
            on_progress(self.progress())

    def progress(self) -> Progress:
        return Progress(self.elapsed(), self.sent, len(self.records), self.good)
