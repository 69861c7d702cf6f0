"""Reads what a session's frontend measures, through Ray Serve's HTTP proxy."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import ValidationError

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import EndpointLatency, Signals
from partita_operator.engines.bounded_client import BoundedClient, NoAnswerError
from partita_operator.engines.monitoring_tokens import MonitoringTokens
from partita_operator.ports import EngineUnavailableError, Remark, ServingSignals, StageSignals
from partita_runtime.serving.deploy.applications import route_prefix
from partita_runtime.serving.deploy.monitoring_access import authorization
from partita_runtime.serving.telemetry.signals import SessionSignals as FrontendSignals

TIMEOUT_SECONDS: Final = 5.0
SAMPLE_SECONDS: Final = 60.0
"""Time limit of the answer to a sample."""
_MOST_BYTES: Final = 1 << 20
"""Of a frontend's answer. A stage takes some 200 bytes."""
_CHECK_URL: Final = "Check ray.serveUrl of the chart; for engine.type KubeRay, kuberay.serveUrl."
_REFUSED: Final = (
    "The frontend does not know the operator's monitoring token, and gets it with the next step of the roll-out. If "
    "this stays, something between them removes the Authorization header."
)
_SEE_LOG: Final = "See the frontend's log in the Ray dashboard."
_OF_STAGE: Final = re.compile(r"(?P<stage>[^\s:]+/[^\s:]+/\d+): (?P<text>.+)", re.DOTALL)
"""A warning of a frontend: `module/pipeline/stage: text`."""


@dataclass(frozen=True)
class FrontendAnswer:
    """The frontend's signals, or why there are none."""

    signals: FrontendSignals | None
    problem: str = ""


class FrontendClient:
    """Reads the signals of frontends, each with the token of its namespace."""

    def __init__(self, tokens: MonitoringTokens, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._tokens = tokens
        self._client = BoundedClient(seconds=timeout_seconds, most_bytes=_MOST_BYTES)

    async def signals(self, serve_url: str, session_key: str) -> FrontendAnswer:
        """What the session's frontend measured over its last window."""
        url = f"{session_url(serve_url, session_key)}/partita/signals"
        token = await self._tokens.of(session_key.partition("/")[0])
        try:
            answer = await self._client.request("GET", url, headers=authorization(token))
        except NoAnswerError as error:
            return FrontendAnswer(None, f"{url} cannot be reached ({error}). {_CHECK_URL}")
        if answer.status == httpx.codes.UNAUTHORIZED:
            return FrontendAnswer(None, f"{url} answers 401. {_REFUSED}")
        if not answer.is_success:
            return FrontendAnswer(None, f"{url} answers {answer.status}. {_SEE_LOG}")
        try:
            return FrontendAnswer(FrontendSignals.model_validate_json(answer.body))
        except ValidationError:
            return FrontendAnswer(None, f"{url} is not a frontend of Partita. {_CHECK_URL}")

    async def ask(self, serve_url: str, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        """Status and body of a plan's answer to a sample. Raises EngineUnavailableError."""
        url = f"{session_url(serve_url, session_key)}/partita/check/{plan}"
        token = await self._tokens.of(session_key.partition("/")[0])
        headers = {**authorization(token), "Content-Type": "application/json"}
        try:
            answer = await self._client.request("POST", url, content=sample, headers=headers, seconds=SAMPLE_SECONDS)
        except NoAnswerError as error:
            raise EngineUnavailableError(f"{url} does not answer a sample: {error}.") from error
        return answer.status, answer.body

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.close()


def session_url(serve_url: str, session_key: str) -> str:
    """The URL that a session's clients use."""
    return f"{serve_url.rstrip('/')}{route_prefix(session_key)}"


def serving_signals(measured: FrontendSignals) -> ServingSignals:
    """The frontend's signals in the form that the reconcilers use."""
    return ServingSignals(
        reported=Signals(
            offered_rate=_quantity(measured.offered_rate),
            goodput=_quantity(measured.goodput),
            bad_rate=_quantity(measured.bad_rate),
            idle_fraction=_quantity(measured.idle_fraction),
            p50_ms=_quantity(measured.p50_ms),
            p99_ms=_quantity(measured.p99_ms),
            endpoints=tuple(
                EndpointLatency(module=each.module, p50_ms=_quantity(each.p50_ms), p99_ms=_quantity(each.p99_ms))
                for each in measured.endpoints
            ),
        ),
        plan=measured.plan,
        stages=tuple(
            StageSignals(s.module, s.pipeline, s.stage, s.ready, s.idle_fraction, s.bad_rate) for s in measured.stages
        ),
        held=measured.held,
        idle_seconds=measured.idle_seconds,
        traffic=measured.traffic,
    )


def remarks(warnings: Iterable[str]) -> tuple[Remark, ...]:
    """The warnings of a frontend, each text once with all its stages."""
    stages: dict[str, list[str]] = {}
    for warning in warnings:
        found = _OF_STAGE.fullmatch(warning)
        text = found["text"] if found else warning
        of_text = stages.setdefault(text.rstrip("."), [])
        if found:
            of_text.append(found["stage"])
    return tuple(Remark(text, tuple(names)) for text, names in stages.items())


def _quantity(number: float) -> Quantity:
    return Quantity(round(number, 4))
