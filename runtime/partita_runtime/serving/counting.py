"""Counts how accepted requests end, whichever protocol they came by."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from partita_runtime.serving.driver import RETRY_AFTER_SECONDS, ClientLeftError, Driver, UnservedError
from partita_runtime.serving.inference import RequestError, check_model
from partita_runtime.serving.scheduler import now_micros
from partita_runtime.serving.session import Session
from partita_runtime.serving.signals import Outcome

if TYPE_CHECKING:
    from partita_runtime.serving.tracing import RequestTrace


def driver_for(session: Session, model: str | None = None, version: str | None = None) -> Driver:
    """What serves requests for the model now. Raises RequestError: 503 if nothing does, 404 for another model."""
    driver = session.serving
    if driver is None:
        raise RequestError(503, "no plan is being served yet", RETRY_AFTER_SECONDS)
    if model is not None:
        check_model(driver.interface, model, version)
    return driver


@contextmanager
def counted(
    session: Session, driver: Driver, samples: int, arrived: int, headers: Mapping[str, str]
) -> Iterator["RequestTrace | None"]:
    """Counts a request of so many samples, which arrived at `arrived` (microseconds), by how the block ends.

    Gives its trace, if it is sampled; the `headers` may say what it is part of.
    """
    tracer = session.tracer
    trace = None if tracer is None else tracer.begin(driver.epoch.plan.name, samples, arrived, headers)
    problem = ""
    session.meter.arrived += samples
    outcome = Outcome.CANCELLED
    try:
        yield trace
        slo = driver.epoch.session.slo.latency_ms * 1000
        outcome = Outcome.IN_TIME if now_micros() - arrived <= slo else Outcome.LATE
    except UnservedError as error:
        outcome, problem = error.outcome, str(error)
        raise
    except (asyncio.CancelledError, ClientLeftError):
        raise
    except Exception as error:
        outcome, problem = Outcome.FAILED, str(error)
        raise
    finally:
        now = now_micros()
        session.meter.ended(outcome, now - arrived, now, samples)
        if trace is not None:
            trace.end(outcome.value, now, problem)
