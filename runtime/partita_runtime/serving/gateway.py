"""The session's HTTP interface: the Open Inference Protocol, and Partita's own signals and metrics."""

import asyncio
import logging
from collections.abc import Awaitable
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from partita_runtime.serving.dispatcher import now_micros
from partita_runtime.serving.driver import RETRY_AFTER_SECONDS, Driver, UnservedError
from partita_runtime.serving.metrics import CONTENT_TYPE, metrics_text
from partita_runtime.serving.oip import (
    HEADER_LENGTH,
    RequestError,
    check_model,
    decode_request,
    encode_answer,
    model_metadata,
    server_metadata,
)
from partita_runtime.serving.session import Session
from partita_runtime.serving.signals import Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_LEFT: Final = 499
"""Status of a request whose client closed the connection; nobody receives it."""


def gateway(session: Session) -> Starlette:
    """The ASGI application that serves `session`, relative to its route prefix."""
    endpoints = _Endpoints(session)
    model = "/v2/models/{model}"
    versioned = model + "/versions/{version}"
    return Starlette(
        routes=[
            Route(model + "/infer", endpoints.infer, methods=["POST"]),
            Route(versioned + "/infer", endpoints.infer, methods=["POST"]),
            Route("/v2", endpoints.server),
            Route("/v2/health/live", endpoints.live),
            Route("/v2/health/ready", endpoints.ready),
            Route(model, endpoints.model),
            Route(versioned, endpoints.model),
            Route(model + "/ready", endpoints.model_ready),
            Route(versioned + "/ready", endpoints.model_ready),
            Route("/partita/signals", endpoints.signals),
            Route("/partita/metrics", endpoints.metrics),
        ],
        exception_handlers={RequestError: _refused, HTTPException: _no_such_endpoint, Exception: _broken},
    )


class _Endpoints:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def server(self, request: Request) -> Response:
        return JSONResponse(server_metadata(_version()))

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = self._session.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def model(self, request: Request) -> Response:
        return JSONResponse(model_metadata(self._driver_for(request).interface))

    async def model_ready(self, request: Request) -> Response:
        self._driver_for(request)
        return await self.ready(request)

    async def signals(self, request: Request) -> Response:
        return JSONResponse(self._session.signals().model_dump(mode="json", by_alias=True))

    async def metrics(self, request: Request) -> Response:
        text = metrics_text(self._session.signals(), self._session.meter)
        return Response(text, media_type=CONTENT_TYPE)

    async def infer(self, request: Request) -> Response:
        arrived = now_micros()
        body = await _body(request, self._session.settings.max_request_bytes)
        driver = self._driver_for(request)  # nothing is awaited from here on until the driver has the request
        wanted = decode_request(body, request.headers.get(HEADER_LENGTH), driver.interface)
        meter = self._session.meter
        meter.arrived += wanted.samples
        outcome = Outcome.CANCELLED
        try:
            tensors = await _unless_client_leaves(request, driver.infer(wanted, arrived))
            if tensors is None:
                return Response(status_code=CLIENT_LEFT)
            headers, content = encode_answer(wanted, driver.interface, tensors)
            slo = driver.epoch.session.slo.latency_ms * 1000
            outcome = Outcome.IN_TIME if now_micros() - arrived <= slo else Outcome.LATE
            return Response(content, headers=headers)
        except UnservedError as error:
            outcome = error.outcome
            raise
        except asyncio.CancelledError:
            raise
        except Exception:
            outcome = Outcome.FAILED
            raise
        finally:
            now = now_micros()
            meter.ended(outcome, now - arrived, now, wanted.samples)

    def _driver_for(self, request: Request) -> Driver:
        driver = self._session.serving
        if driver is None:
            raise RequestError(503, "no plan is being served yet", RETRY_AFTER_SECONDS)
        check_model(driver.interface, request.path_params["model"], request.path_params.get("version"))
        return driver


async def _body(request: Request, most: int) -> bytes:
    """The request's body. Raises RequestError (413) as soon as it is known to be larger than `most`."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(400, "compressed request bodies are not supported")
    length = request.headers.get("content-length", "0")
    chunks, size = [], 0
    if not length.isdecimal() or int(length) <= most:
        async for chunk in request.stream():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                break
        else:
            return b"".join(chunks)
    raise RequestError(413, f"the request's body must not be larger than {most} bytes")


async def _unless_client_leaves(request: Request, work: Awaitable[T]) -> T | None:
    """What `work` gives; None, with `work` cancelled, if the client closes the connection before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_client_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers = {}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(error.retry_after_seconds)
    if error.status == 413:
        headers["connection"] = "close"  # else the server would go on reading what nobody wants
    return JSONResponse({"error": str(error)}, error.status, headers)


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)


async def _broken(_request: Request, error: Exception) -> Response:
    logger.error("a request broke the frontend", exc_info=error)
    return JSONResponse({"error": "internal error"}, 500)


def _version() -> str:
    try:
        return version("partita")
    except PackageNotFoundError:
        return "unknown"
