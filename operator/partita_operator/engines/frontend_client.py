"""What a session's frontend says of itself, asked through Ray Serve's HTTP proxy."""

from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from partita_api.inferencesession import Signals
from partita_api.quantity import Quantity
from partita_operator.ports import SessionSignals, StageSignals
from partita_runtime.serving.deploy.applications import route_prefix
from partita_runtime.serving.telemetry.signals import SessionSignals as FrontendSignals

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What the frontend answered, or why it did not."""

    signals: FrontendSignals | None
    problem: str = ""


class Frontends:
    """Asks the frontends behind one proxy."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._client = httpx.AsyncClient(timeout=timeout_seconds, trust_env=False)

    async def ask(self, serve_url: str, session_key: str) -> Answer:
        """What the session's frontend measured over its last window."""
        url = f"{session_url(serve_url, session_key)}/partita/signals"
        try:
            answer = await self._client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(None, f"{url} cannot be reached ({error or type(error).__name__}); see PARTITA_SERVE_URL")
        if not answer.is_success:
            return Answer(None, f"{url} answers {answer.status_code}")
        try:
            return Answer(FrontendSignals.model_validate_json(answer.content))
        except ValidationError:
            return Answer(None, f"{url} is no frontend of Partita's; see PARTITA_SERVE_URL")

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def session_url(serve_url: str, session_key: str) -> str:
    """The URL that a session's clients use."""
    return f"{serve_url.rstrip('/')}{route_prefix(session_key)}"


def session_signals(measured: FrontendSignals) -> SessionSignals:
    """The frontend's signals as the reconcilers take them."""
    return SessionSignals(
        reported=Signals(
            offered_rate=_quantity(measured.offered_rate),
            goodput=_quantity(measured.goodput),
            bad_rate=_quantity(measured.bad_rate),
            idle_fraction=_quantity(measured.idle_fraction),
            p50_ms=_quantity(measured.p50_ms),
            p99_ms=_quantity(measured.p99_ms),
        ),
        plan=measured.plan,
        stages=tuple(
            StageSignals(s.module, s.pipeline, s.stage, s.ready, s.idle_fraction, s.bad_rate) for s in measured.stages
        ),
        held=measured.held,
        idle_seconds=measured.idle_seconds,
    )


def _quantity(number: float) -> Quantity:
    return Quantity(round(number, 4))
