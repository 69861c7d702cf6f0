"""Requests with images, of every protocol: decoded within the request's time, before they are executed or held."""

import asyncio
from collections.abc import Mapping

from partita_runtime.serving.ingress.request_accounting import RequestAccounting
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason
from partita_runtime.serving.transport.clock import now_micros


async def with_tensors(
    session: Session, requested: InferRequest, executor: EpochExecutor, arrived: int, headers: Mapping[str, str]
) -> InferRequest:
    """The request, which arrived at `arrived` (microseconds), with tensors instead of images.

    Raises RequestError for an image that is not decoded, BodyMemoryError if too many bytes wait already, and
    UnservedError, which is counted, if the request has waited for as long as its SLO.
    """
    patience = min(executor.slo_micros, requested.timeout_micros or executor.slo_micros)
    try:
        async with asyncio.timeout((arrived + patience - now_micros()) / 1e6):
            return await session.images.decode(requested, executor.interface)
    except TimeoutError:
        error = UnservedError(UnservedReason.TOO_LATE, "the request's images cannot be decoded before its deadline")
        RequestAccounting(session, executor, requested.samples, arrived, headers).end(error)
        raise error from None
