"""What clients may know of a session besides answers, for every protocol."""

import time
from typing import Any

from partita_runtime.serving.ingress.request_accounting import executor_for
from partita_runtime.serving.protocol import triton
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.telemetry.signals import Meter, Outcome

_SUCCEEDED = (Outcome.IN_TIME, Outcome.LATE)
_FAILED = tuple(outcome for outcome in Outcome if outcome not in (*_SUCCEEDED, Outcome.CANCELLED, Outcome.REFUSED))


def configuration(session: Session, model: str | None, version: str | None) -> dict[str, Any]:
    """The session as a model's configuration. Raises RequestError as `executor_for` does."""
    return triton.model_configuration(executor_for(session, model, version).interface)


def statistics(session: Session, model: str | None, version: str | None) -> dict[str, Any]:
    """The statistics of all frontends. Raises RequestError as `executor_for` does."""
    name = executor_for(session, model, version).interface.model_name
    total = session.total
    ended = sum(total.requests.values())
    idle = session.signals().idle_seconds
    measured = triton.Statistics(
        succeeded=_totals(total, _SUCCEEDED),
        failed=_totals(total, _FAILED),
        samples=sum(total.outcomes[outcome] for outcome in _SUCCEEDED),
        last_request_millis=round((time.time() - idle) * 1000) if ended else 0,
    )
    return triton.model_statistics(name, measured)


def repository_index(session: Session, only_ready: bool) -> list[dict[str, str]]:
    """The repository with the session as its only model."""
    unready = "" if session.ready else session.signals().message or "a stage of the plan has no replica"
    return triton.repository_index(session.key.partition("/")[2], unready, only_ready)


def _totals(meter: Meter, outcomes: tuple[Outcome, ...]) -> triton.RequestTotals:
    return triton.RequestTotals(
        count=sum(meter.requests[outcome] for outcome in outcomes),
        micros=sum(meter.request_micros[outcome] for outcome in outcomes),
    )
