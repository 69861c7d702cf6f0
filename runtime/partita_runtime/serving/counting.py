"""Counts how accepted requests end, whichever protocol they came by."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from partita_runtime.serving.dispatcher import now_micros
from partita_runtime.serving.driver import RETRY_AFTER_SECONDS, ClientLeftError, Driver, UnservedError
from partita_runtime.serving.inference import RequestError, check_model
from partita_runtime.serving.session import Session
from partita_runtime.serving.signals import Outcome


def driver_for(session: Session, model: str | None = None, version: str | None = None) -> Driver:
    """What serves requests for the model now. Raises RequestError: 503 if nothing does, 404 for another model."""
    driver = session.serving
    if driver is None:
        raise RequestError(503, "no plan is being served yet", RETRY_AFTER_SECONDS)
    if model is not None:
        check_model(driver.interface, model, version)
    return driver


@contextmanager
def counted(session: Session, driver: Driver, samples: int, arrived: int) -> Iterator[None]:
    """Counts a request of so many samples, which arrived at `arrived` (microseconds), by how the block ends."""
    session.meter.arrived += samples
    outcome = Outcome.CANCELLED
    try:
        yield
        slo = driver.epoch.session.slo.latency_ms * 1000
        outcome = Outcome.IN_TIME if now_micros() - arrived <= slo else Outcome.LATE
    except UnservedError as error:
        outcome = error.outcome
        raise
    except (asyncio.CancelledError, ClientLeftError):
        raise
    except Exception:
        outcome = Outcome.FAILED
        raise
    finally:
        now = now_micros()
        session.meter.ended(outcome, now - arrived, now, samples)
