"""Counts how pending requests end, for every protocol."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partita_runtime.serving.deploy.version_routes import VersionRoute
from partita_runtime.serving.protocol.inference import (
    MODEL_VERSION,
    RETRY_AFTER_SECONDS,
    RequestError,
    check_model,
    listed,
)
from partita_runtime.serving.session.epoch_executor import ClientLeftError, EpochExecutor
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.unserved_error import UnservedError
from partita_runtime.serving.telemetry.signals import Outcome
from partita_runtime.serving.transport.clock import now_micros

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTrace


def executor_for(session: Session, model: str | None = None, version: str | None = None) -> EpochExecutor:
    """The current executor. Raises RequestError: 503 before the first plan serves, 404 for another model."""
    executor = session.serving
    if executor is None:
        raise RequestError(503, "no plan is being served yet", RETRY_AFTER_SECONDS)
    if model is not None:
        if session.versions and version is not None:
            check_model(executor.interface, model, None)
            _check_version(session.versions, version)
        else:
            check_model(executor.interface, model, version)
    return executor


def _check_version(routes: Sequence[VersionRoute], version: str) -> None:
    """Raise RequestError unless the version is this session itself: 501 for another one, 404 for an unknown one."""
    if version == MODEL_VERSION:
        return
    for route in routes:
        if route.name == version:
            raise RequestError(501, f"{route.label} is not answered here; send requests to that session itself")
    known = listed([MODEL_VERSION, *(route.name for route in routes)])
    raise RequestError(404, f"there is no version {version!r}; the versions are {known}")


class RequestAccounting:
    """Counts one request by its outcome, and ends its trace."""

    __slots__ = ("_arrived", "_executor", "_meter", "_samples", "trace")

    def __init__(
        self, session: Session, executor: EpochExecutor, samples: int, arrived: int, headers: Mapping[str, str]
    ) -> None:
        """The request arrived at `arrived` (microseconds). `headers` may have the client's trace context."""
        self._executor, self._meter, self._samples, self._arrived = executor, session.meter, samples, arrived
        self.trace: RequestTrace | None = None
        """None unless the request is sampled."""
        if session.tracer is not None:
            self.trace = session.tracer.begin(executor.epoch.plan.name, samples, arrived, headers)
        self._meter.arrived += samples

    def begin(self, executor: EpochExecutor, now: int) -> None:
        """The request was held; its SLO begins now, with this executor."""
        self._executor, self._arrived = executor, now

    def end(self, error: BaseException | None = None) -> None:
        """The request is answered, or failed with `error`."""
        now = now_micros()
        match error:
            case None:
                in_time = now - self._arrived <= self._executor.slo_micros
                outcome = Outcome.IN_TIME if in_time else Outcome.LATE
            case UnservedError():
                outcome = error.outcome
            case Exception() if not isinstance(error, ClientLeftError):
                outcome = Outcome.FAILED
            case _:
                outcome = Outcome.CANCELLED
        self._meter.ended(outcome, now - self._arrived, now, self._samples)
        if self.trace is not None:
            problem = "" if outcome is Outcome.CANCELLED or error is None else str(error)
            self.trace.end(outcome.value, now, problem)
