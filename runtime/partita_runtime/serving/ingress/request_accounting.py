"""Counts how accepted requests end, whichever protocol they came by."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from partita_runtime.serving.dispatch.scheduler import now_micros
from partita_runtime.serving.protocol.inference import RETRY_AFTER_SECONDS, RequestError, UnservedError, check_model
from partita_runtime.serving.session.epoch_executor import ClientLeftError, Driver
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.telemetry.signals import Outcome

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTrace


def driver_for(session: Session, model: str | None = None, version: str | None = None) -> Driver:
    """What serves requests for the model now. Raises RequestError: 503 if nothing does, 404 for another model."""
    driver = session.serving
    if driver is None:
        raise RequestError(503, "no plan is being served yet", RETRY_AFTER_SECONDS)
    if model is not None:
        check_model(driver.interface, model, version)
    return driver


class Counted:
    """A request of so many samples, which arrived at `arrived` (microseconds), counted by how it ends."""

    __slots__ = ("_arrived", "_driver", "_meter", "_samples", "trace")

    def __init__(
        self, session: Session, driver: Driver, samples: int, arrived: int, headers: Mapping[str, str]
    ) -> None:
        """The `headers` may say what it is part of, if it is traced."""
        self._driver, self._meter, self._samples, self._arrived = driver, session.meter, samples, arrived
        self.trace: RequestTrace | None = None
        """Its trace, if it is sampled."""
        if session.tracer is not None:
            self.trace = session.tracer.begin(driver.epoch.plan.name, samples, arrived, headers)
        self._meter.arrived += samples

    def begin(self, driver: Driver, now: int) -> None:
        """Its time begins only now, with this driver: it was held."""
        self._driver, self._arrived = driver, now

    def end(self, error: BaseException | None = None) -> None:
        """It is answered, or has failed with this."""
        now = now_micros()
        match error:
            case None:
                in_time = now - self._arrived <= self._driver.slo_micros
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
