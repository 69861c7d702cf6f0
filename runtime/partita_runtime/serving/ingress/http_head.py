"""Parses a request's head on the frontend's own HTTP port, with llhttp's parser."""

from typing import Final, NamedTuple
from urllib.parse import unquote

import httptools

from partita_runtime.serving.authentication.authenticator import CREDENTIALS
from partita_runtime.serving.ingress.http_routes import HttpHead
from partita_runtime.serving.ingress.http_service import HttpCall, HttpService
from partita_runtime.serving.protocol.inference import RequestError, digits
from partita_runtime.serving.protocol.oip import HEADER_LENGTH

MOST_KEPT: Final = 256
"""HeadReader that are kept for requests that have the same one, as most of a client's have."""
MOST_KEPT_BYTES: Final = 2048


class RequestHead(NamedTuple):
    """A parsed head."""

    call: HttpCall | RequestError
    """The request, or why it is refused before its body is read."""
    length: int
    """Bytes of the body; 0 if it is chunked."""
    tensors_at: int
    """Where binary tensors begin in the body."""
    chunked: bool
    keep_alive: bool
    reads_chunks: bool
    """Whether the answer may be chunked: not by HTTP/1.0."""
    expects_continue: bool


class HeadReader:
    """Parses heads for one service; equal bytes are parsed once."""

    def __init__(self, service: HttpService, base_url: str) -> None:
        """`base_url` may precede all paths, as it does at Serve's proxy."""
        self._service = service
        self._base_url = base_url
        self._kept: dict[bytes, RequestHead] = {}

    def read(self, raw: bytes) -> RequestHead | None:
        """Parse a whole head; None for empty lines. Raises RequestError (400) if it is not HTTP."""
        head = self._kept.get(raw)
        if head is not None:
            return head
        head = self._read(raw)
        if head is not None and len(raw) <= MOST_KEPT_BYTES:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[raw] = head
        return head

    def _read(self, raw: bytes) -> RequestHead | None:
        read = _HeadCallbacks()
        parser = httptools.HttpRequestParser(read)
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass  # an upgrade is not offered
        except httptools.HttpParserError as error:
            raise not_http(error) from None
        if not read.complete:
            return None
        headers = read.headers
        length = digits(headers.get("content-length", "0"))
        if length is None:
            raise RequestError(400, "content-length is not a number of bytes")
        chunked = "transfer-encoding" in headers
        call: HttpCall | RequestError
        try:
            call = self._service.call(self._head(parser.get_method().decode(), read))
        except RequestError as error:
            call = error
        return RequestHead(
            call=call,
            length=length,
            tensors_at=digits(headers.get(HEADER_LENGTH, "0")) or 0,
            chunked=chunked,
            # The parser has consumed what follows a chunked body, so the connection cannot be used again.
            keep_alive=parser.should_keep_alive() and not chunked,
            reads_chunks=parser.get_http_version() != "1.0",
            expects_continue=headers.get("expect", "").lower() == "100-continue",
        )

    def _head(self, method: str, read: "_HeadCallbacks") -> HttpHead:
        try:
            path = unquote((httptools.parse_url(read.url).path or b"/").decode("latin-1"))
        except httptools.HttpParserError as error:
            raise not_http(error) from None
        base_url = self._base_url if path.startswith(f"{self._base_url}/") else ""
        return HttpHead(method, path.removeprefix(base_url), read.headers, base_url, tuple(read.credentials))


class _HeadCallbacks:
    """The parser's callbacks."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.credentials: list[str] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = text
        if key == CREDENTIALS:
            self.credentials.append(text)

    def on_headers_complete(self) -> None:
        self.complete = True


def not_http(error: Exception) -> RequestError:
    """The error for bytes that the parser refuses."""
    return RequestError(400, f"not HTTP: {error}")
