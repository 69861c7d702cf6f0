"""Sends the phases of the load, and samples the session meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import numpy as np
from pydantic import ValidationError

from partita_api.inferencesession import InferenceSession
from partita_devtools.demo.config import LoadPhase
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.machine import CpuTicks
from partita_devtools.demo.result import PhaseResult, SignalSample
from partita_devtools.machine.commands import Report
from partita_devtools.sessions.snapshot import SessionSnapshot
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig, Progress, run_load
from partita_runtime.serving.deploy.monitoring_access import authorization
from partita_runtime.serving.protocol.inference_client import Payload
from partita_runtime.serving.telemetry.signals import SessionSignals

_SAMPLE_EVERY_S = 1.0
_REPORT_EVERY_S = 5.0


@dataclass(frozen=True)
class SessionEndpoint:
    """The URLs of a session."""

    base_url: str
    model: str
    monitoring_token: str = field(default="", repr=False)
    """Reads the frontend's measurements."""

    @property
    def infer_url(self) -> str:
        """URL of infer requests."""
        return f"{self.base_url.rstrip('/')}/v2/models/{self.model}/infer"

    @property
    def signals_url(self) -> str:
        """URL of the frontend's measurements."""
        return f"{self.base_url.rstrip('/')}/partita/signals"


async def first_answer(endpoint: SessionEndpoint, payload: Payload, timeout_s: float = 60.0) -> None:
    """Return once a request is answered; a refused one is sent again. Raises DemoError if none is answered in time."""
    deadline = time.monotonic() + timeout_s
    async with httpx.AsyncClient(timeout=timeout_s) as http:
        while True:
            try:
                answer = await http.post(endpoint.infer_url, content=payload.body, headers=payload.headers)
                if answer.status_code == 200:
                    return
                answered = f"{answer.status_code} {answer.text[:200]}"
            except httpx.HTTPError as error:
                answered = repr(error)
            if time.monotonic() > deadline:
                raise DemoError(
                    f"no request is answered at {endpoint.infer_url}: {answered}. "
                    "Check that Ray Serve's proxy has that port"
                )
            await asyncio.sleep(0.2)


async def send_phases(
    endpoint: SessionEndpoint,
    session: InferenceSession,
    phases: Sequence[LoadPhase],
    payloads: Sequence[Payload],
    *,
    seed: int,
    look: Callable[[], Awaitable[SessionSnapshot]],
    report: Report,
) -> tuple[tuple[PhaseResult, ...], tuple[SignalSample, ...]]:
    """Send the phases one after the other; returns their results, and the samples of session and frontend."""
    sampler = _Sampler(endpoint, look, report)
    sampling = asyncio.create_task(sampler.run())
    done = []
    try:
        for number, phase in enumerate(phases):
            done.append(await _send(endpoint, session, phase, payloads, seed + number, sampler, report))
        await asyncio.sleep(_SAMPLE_EVERY_S)
    finally:
        sampling.cancel()
    return tuple(done), tuple(sampler.samples)


async def _send(
    endpoint: SessionEndpoint,
    session: InferenceSession,
    phase: LoadPhase,
    payloads: Sequence[Payload],
    seed: int,
    sampler: "_Sampler",
    report: Report,
) -> PhaseResult:
    declared, slo_s = session.spec.rate, session.spec.slo.latency_ms / 1000
    rate = declared.requests_per_second * phase.factor
    report(f"{phase.name}: {rate:g} requests/s for {phase.seconds:.0f} s")
    shape = float(declared.gamma_shape) if declared.gamma_shape is not None else 1.0
    generator = np.random.default_rng(seed)
    load = LoadConfig(
        url=endpoint.infer_url,
        payloads=payloads,
        schedule=arrival_times(declared.arrival, RateSchedule.constant(rate), phase.seconds, generator, shape),
        duration_s=phase.seconds,
        slo_s=slo_s,
        timeout_s=max(10.0, 3 * slo_s),
    )
    start_s, ticks = sampler.elapsed(), CpuTicks.now()
    run = await run_load(load, _ProgressLines(phase, report))
    for warning in run.report.warnings:
        report(f"warning: {warning}")
    return PhaseResult(phase.name, start_s, rate, run.report, CpuTicks.now().machine_since(ticks).busy)


@dataclass
class _ProgressLines:
    phase: LoadPhase
    report: Report
    _due: float = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.elapsed_s >= self._due:
            self._due = progress.elapsed_s + _REPORT_EVERY_S
            self.report(
                f"{self.phase.name}: {progress.sent} sent, {progress.good} answered in time, "
                f"{progress.pending} without an answer yet; "
                f"{max(0.0, self.phase.seconds - progress.elapsed_s):.0f} s left"
            )


@dataclass
class _Sampler:
    endpoint: SessionEndpoint
    look: Callable[[], Awaitable[SessionSnapshot]]
    report: Report
    samples: list[SignalSample] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=5.0) as http:
            while True:
                await self._sample(http)
                await asyncio.sleep(_SAMPLE_EVERY_S)

    async def _sample(self, http: httpx.AsyncClient) -> None:
        found = await self.look()
        try:
            answer = await http.get(self.endpoint.signals_url, headers=authorization(self.endpoint.monitoring_token))
            answer.raise_for_status()
            signals = SessionSignals.model_validate_json(answer.content)
        except (httpx.HTTPError, ValidationError) as error:
            self.report(f"warning: no signals at {self.endpoint.signals_url}: {error}")
            return
        self.samples.append(SignalSample(self.elapsed(), signals, _desired(found), _recommended(found)))


def _desired(found: SessionSnapshot) -> dict[str, int]:
    plan = found.current_plan
    stages = plan.status.stages if plan is not None else ()
    return {f"{stage.module}/{stage.pipeline}/{stage.stage}": stage.desired for stage in stages}


def _recommended(found: SessionSnapshot) -> str:
    signals = found.session.status.signals
    return signals.recommendation if signals is not None else ""
