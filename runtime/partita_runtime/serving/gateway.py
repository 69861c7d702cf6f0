"""The session's HTTP interface: the Open Inference Protocol, and Partita's own signals and metrics."""

import asyncio
import logging
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from partita_runtime.serving.counting import counted, driver_for
from partita_runtime.serving.dispatcher import now_micros
from partita_runtime.serving.driver import ClientLeftError, Driver
from partita_runtime.serving.images import IMAGE_TYPES, image_request, is_image, with_images
from partita_runtime.serving.inference import RequestError, model_metadata, server_metadata
from partita_runtime.serving.metrics import CONTENT_TYPE, metrics_text
from partita_runtime.serving.oip import HEADER_LENGTH, decode_request, encode_answer
from partita_runtime.serving.openapi import openapi
from partita_runtime.serving.session import FrontendSettings, Session

logger = logging.getLogger(__name__)

CONTENT_TYPES: Final = (
    "application/json",
    "application/octet-stream",
    *IMAGE_TYPES,
    "application/x-www-form-urlencoded",  # what curl says of any data, if it is not told better
    "",
)
"""What the body of an inference request may be."""

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
            Route("/openapi.json", endpoints.openapi),
            Route("/partita/signals", endpoints.signals),
            Route("/partita/metrics", endpoints.metrics),
        ],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _no_such_endpoint,
            ClientDisconnect: _left,
            Exception: _broken,
        },
    )


class _Endpoints:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def server(self, request: Request) -> Response:
        return JSONResponse(server_metadata())

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

    async def openapi(self, request: Request) -> Response:
        driver = driver_for(self._session)
        return JSONResponse(openapi(driver.interface, request.scope.get("root_path", "")))

    async def signals(self, request: Request) -> Response:
        return JSONResponse(self._session.signals().model_dump(mode="json", by_alias=True))

    async def metrics(self, request: Request) -> Response:
        text = metrics_text(self._session.signals(), self._session.meter)
        return Response(text, media_type=CONTENT_TYPE)

    async def infer(self, request: Request) -> Response:
        arrived = now_micros()
        content_type = _content_type(request)
        body = await _body(request, self._session.settings)
        driver = self._driver_for(request)
        if is_image(content_type, body):
            wanted = image_request(body, driver.interface)
        else:
            wanted = decode_request(body, request.headers.get(HEADER_LENGTH), driver.interface)
        if wanted.images:
            wanted = await with_images(wanted, driver.interface)
            driver = self._driver_for(request)
        # Nothing is awaited between choosing the driver and its having the request.
        try:
            with counted(self._session, driver, wanted.samples, arrived, request.headers) as trace:
                left = asyncio.create_task(_client_left(request))
                try:
                    tensors = await driver.infer(wanted, arrived, left, trace)
                finally:
                    left.cancel()
                headers, content = encode_answer(wanted, driver.interface, tensors)
        except ClientLeftError:
            return Response(status_code=CLIENT_LEFT)
        return Response(content, headers=headers)

    def _driver_for(self, request: Request) -> Driver:
        return driver_for(self._session, request.path_params["model"], request.path_params.get("version"))


def _content_type(request: Request) -> str:
    """What the body is said to be. Raises RequestError (415) for what is not taken."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise RequestError(
            415, f"content type {content_type!r} is not supported; send one of {', '.join(filter(None, CONTENT_TYPES))}"
        )
    return content_type


async def _body(request: Request, settings: FrontendSettings) -> bytes:
    """The request's body.

    Raises RequestError as soon as it is known to be too large (413), or when it does not come in time (408).
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(400, "compressed request bodies are not supported")
    length = request.headers.get("content-length", "0")
    most = settings.max_request_bytes
    chunks, size = [], 0
    if not length.isdecimal() or int(length) <= most:
        try:
            async with asyncio.timeout(settings.body_seconds):
                async for chunk in request.stream():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > most:
                        break
                else:
                    return b"".join(chunks)
        except TimeoutError:
            raise RequestError(408, f"the request's body did not arrive within {settings.body_seconds:g} s") from None
    raise RequestError(413, f"the request's body must not be larger than {most} bytes")


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers = {}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(error.retry_after_seconds)
    if error.status in (408, 413, 415):
        headers["connection"] = "close"  # else the server would go on reading what nobody wants
    return JSONResponse({"error": str(error)}, error.status, headers)


async def _left(_request: Request, _error: Exception) -> Response:
    """The client left before its request was there."""
    return Response(status_code=CLIENT_LEFT)


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)


async def _broken(_request: Request, error: Exception) -> Response:
    logger.error("a request broke the frontend", exc_info=error)
    return JSONResponse({"error": "internal error"}, 500)
