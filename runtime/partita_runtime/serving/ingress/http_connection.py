"""A connection to the frontend's own HTTP port: an asyncio protocol around llhttp's parser."""

import asyncio
import email.utils
import time
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol, cast

import httptools
import numpy as np

from partita_runtime.serving.ingress.http_answers import CancellableRequest, HttpAnswer, refusal, too_large, too_slow
from partita_runtime.serving.ingress.http_head import HeadReader, RequestHead, not_http
from partita_runtime.serving.ingress.http_routes import HttpHead, Operation
from partita_runtime.serving.ingress.http_service import HttpCall, HttpService
from partita_runtime.serving.ingress.refusals import refused
from partita_runtime.serving.protocol.inference import Body, RequestError
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.transport.clock import now_micros

MAX_HEAD_BYTES: Final = 64 * 1024
"""Largest head of a request. Also how much of the next request is read while one is pending."""
HEAD_SECONDS: Final = 10.0
"""How long the rest of a head may take once its first bytes have arrived."""
IDLE_SECONDS: Final = 90.0
"""How long an idle connection stays open: longer than load balancers keep theirs."""
SEND_SECONDS: Final = 30.0
"""How long a client may read nothing of its answer."""
LINGER_SECONDS: Final = 2.0
"""How long the rest of a refused request is read and discarded, so the client can read the answer."""

_JOIN_BELOW: Final = 64 * 1024
_ALIGNMENT: Final = 64
_NO_CALL: Final = HttpCall(HttpHead("", "", {}), Operation.LIVE, "")


class Connections(Protocol):
    """The server of a connection."""

    service: HttpService
    heads: HeadReader
    scratch: memoryview
    """The buffer that all connections share for reading heads and chunks."""
    closing: bool
    """Whether no new requests are answered."""

    def waits(self, connection: "HttpConnection") -> None:
        """A connection waits for its client to send a request, or the rest of one."""

    def works(self, connection: "HttpConnection") -> None:
        """A connection has a pending request, or is about to close."""

    def gone(self, connection: "HttpConnection") -> None:
        """A connection is closed."""


class _ConnectionState(Enum):
    WAITING = auto()
    """For a request, or the rest of a head."""
    SIZED_BODY = auto()
    CHUNKED_BODY = auto()
    ANSWERING = auto()
    SENDING = auto()
    """The client reads its answer slowly; its next request waits."""
    CLOSING = auto()
    """Received bytes are discarded."""


class HttpConnection(asyncio.BufferedProtocol):
    """Answers one request after the other, with limits of size and time for everything that a client sends."""

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._service = server.service
        self._clock = asyncio.get_running_loop().time
        self._transport = asyncio.Transport()
        """Replaced by that of the connection."""
        self._state = _ConnectionState.WAITING
        self._deadline: float | None = None
        """When the time limit of the current state ends; None for no limit."""
        self._unread = bytearray()
        """Bytes that have arrived and are not parsed yet."""
        self._paused_reading = self._paused_writing = False
        self._unsent = 0
        self._reading = self._service.reading()
        """The bytes of an incomplete body."""
        self._in_progress: CancellableRequest | None = None
        """The pending request; None while it cannot be cancelled, or without one."""
        self._parsing = False
        self._keep_alive = self._reads_chunks = False
        self._is_streaming = False
        """Whether parts of the answer have been sent."""
        self._call = _NO_CALL
        """The request that is being read or answered."""
        self._arrived = 0
        """When its head had arrived (microseconds)."""
        self._body = memoryview(b"")
        """The memory of a body with a known size."""
        self._chunks: list[bytes] = []
        self._filled = 0
        """Bytes of the body that have arrived."""
        self._complete = False
        """Whether a chunked body is complete."""
        self._parser: httptools.HttpRequestParser | None = None
        """Of a chunked body."""

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._state = _ConnectionState.CLOSING
        self._reading.end()
        self._server.gone(self)
        if self._in_progress is not None:
            self._in_progress.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        if self._state is _ConnectionState.SIZED_BODY:
            return self._body[self._filled :]
        return self._server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        match self._state:
            case _ConnectionState.SIZED_BODY:
                self._filled += nbytes
                if self._filled == len(self._body):
                    self._serve(self._body)
                else:
                    self._keep(nbytes)
            case _ConnectionState.CHUNKED_BODY:
                self._read_chunks(bytes(self._server.scratch[:nbytes]))
            case _ConnectionState.CLOSING:
                pass
            case _:
                self._unread += self._server.scratch[:nbytes]
                if self._state is _ConnectionState.WAITING:
                    self._parse()
                elif len(self._unread) > MAX_HEAD_BYTES:
                    self._paused_reading = True
                    self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._paused_writing = True

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._paused_writing = False
        if self._state is _ConnectionState.SENDING:
            self._wait()
            self._parse()
        elif self._state is _ConnectionState.ANSWERING:
            self._deadline = None

    # Called by the server.

    def expire(self, now: float) -> None:
        """Close the connection if a time limit has passed; called regularly."""
        if self._deadline is None or now < self._deadline:
            return
        match self._state:
            case _ConnectionState.SIZED_BODY | _ConnectionState.CHUNKED_BODY:
                self._refuse(too_slow(self._service.settings))
            case _ConnectionState.WAITING if self._unread:
                self._refuse(RequestError(408, f"the request's head did not arrive within {HEAD_SECONDS:g} s"))
            case _ConnectionState.ANSWERING | _ConnectionState.SENDING | _ConnectionState.CLOSING if (
                0 < self._transport.get_write_buffer_size() < self._unsent
            ):
                self._expect_sending(SEND_SECONDS)
            case _:
                self.abort()

    def leave(self) -> None:
        """Close, unless a request has begun."""
        if self._state is _ConnectionState.WAITING and not self._unread:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # The parser's callbacks.

    def on_body(self, body: bytes) -> None:
        """Called by the parser, for chunked bodies only."""
        if not self._complete:
            self._chunks.append(body)
            self._filled += len(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._complete = True

    # From one request to the next.

    def _wait(self) -> None:
        self._state = _ConnectionState.WAITING
        self._deadline = self._clock() + IDLE_SECONDS
        self._server.waits(self)
        if self._paused_reading:
            self._paused_reading = False
            self._transport.resume_reading()

    def _parse(self) -> None:
        """Begin the requests that have arrived. Requests that are answered at once do not recurse."""
        if self._parsing:
            return
        self._parsing = True
        while self._state is _ConnectionState.WAITING and self._unread:
            end = self._unread.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(self._unread) > MAX_HEAD_BYTES:
                    self._refuse(RequestError(431, f"the request's head is longer than {MAX_HEAD_BYTES} bytes"))
                elif self._deadline is not None:
                    self._deadline = min(self._deadline, self._clock() + HEAD_SECONDS)
                break
            head = bytes(memoryview(self._unread)[:end])
            del self._unread[:end]
            self._begin(head)
        self._parsing = False

    def _begin(self, raw: bytes) -> None:
        try:
            head = self._server.heads.read(raw)
        except RequestError as error:
            self._refuse(error)
            return
        if head is None:
            return
        self._keep_alive, self._reads_chunks = head.keep_alive, head.reads_chunks
        if isinstance(head.call, RequestError):
            self._refuse(head.call, head.keep_alive and not head.length)
            return
        try:
            self._service.admit(head.call)
        except RequestError as error:
            self._refuse(error, head.keep_alive and not head.length)
            return
        self._call, self._arrived = head.call, now_micros()
        length = head.length
        if head.chunked or len(self._unread) < length:
            self._read_body(head, raw)
        elif length:
            body = bytes(memoryview(self._unread)[:length])
            del self._unread[:length]
            self._serve(body)
        else:
            self._serve(b"")

    def _read_body(self, head: RequestHead, raw: bytes) -> None:
        self._deadline = self._clock() + self._service.settings.body_seconds
        begun, self._unread = self._unread, bytearray()
        if head.expects_continue and not begun:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if head.chunked:
            self._state = _ConnectionState.CHUNKED_BODY
            self._chunks, self._filled, self._complete = [], 0, False
            self._parser = httptools.HttpRequestParser(self)
            self._read_chunks(raw + begun)
            return
        self._state = _ConnectionState.SIZED_BODY
        self._body, self._filled = _memory(head.length, head.tensors_at), len(begun)
        self._body[: len(begun)] = begun
        self._keep(len(begun))

    def _keep(self, size: int) -> None:
        """`size` more bytes of an incomplete body have arrived."""
        try:
            self._reading.grew(size)
        except BodyMemoryError as error:
            self._refuse(refused(error))

    def _read_chunks(self, raw: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(raw)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._refuse(not_http(error))
                return
        if self._filled > self._service.settings.max_request_bytes:
            self._refuse(too_large(self._service.settings))
        elif self._complete:
            self._serve(b"".join(self._chunks))
        else:
            self._keep(len(raw))

    def _serve(self, body: Body) -> None:
        self._state, self._deadline = _ConnectionState.ANSWERING, None
        self._body, self._chunks = memoryview(b""), []
        self._reading.end()
        self._server.works(self)
        self._service.begin(self, self._call, body, self._arrived)

    def began(self, request: CancellableRequest) -> None:
        """Called by the service: the request can be cancelled."""
        self._in_progress = request

    def part(self, part: HttpAnswer) -> None:
        """Called by the service."""
        if self._transport.is_closing():
            return
        self._keep_alive &= self._reads_chunks  # else the end of the connection is that of the stream
        head = b"" if self._is_streaming else _stream_head(part, self._reads_chunks, self._keep_alive)
        sent = head + self._framed(part.content)
        self._is_streaming = True
        self._transport.write(sent)
        if self._paused_writing and self._deadline is None:
            self._expect_sending(SEND_SECONDS)
        elif self._paused_writing:
            self._unsent += len(sent)

    def answer(self, answer: HttpAnswer) -> None:
        """Called by the service."""
        self._in_progress = None
        self._send(answer, with_content=self._call.head.method != "HEAD")
        self._parse()

    def _refuse(self, error: RequestError, stays: bool = False) -> None:
        """Answer with an error. The connection `stays` open if the whole request was read."""
        self._keep_alive = stays
        self._send(refusal(error))

    # Answers.

    def _send(self, answer: HttpAnswer, with_content: bool = True) -> None:
        if self._transport.is_closing():
            return
        stays = self._keep_alive and not answer.close and not self._server.closing
        head, content = b"", answer.content if with_content else b""
        if self._is_streaming:
            content = self._framed(content) + self._framed(b"")
            self._is_streaming = False
        else:
            head = _response_head(answer, stays)
        if len(content) < _JOIN_BELOW:
            self._transport.write(head + content)
        else:
            self._transport.writelines((head, content))
        if not stays:
            self._close_gently()
        elif self._paused_writing:
            self._state = _ConnectionState.SENDING
            self._expect_sending(SEND_SECONDS)
        else:
            self._wait()

    def _framed(self, content: bytes) -> bytes:
        """Content of a stream; a chunk without content is its end."""
        return b"%x\r\n%b\r\n" % (len(content), content) if self._reads_chunks else content

    def _close_gently(self) -> None:
        """Close the connection once the client has had time to read its answer."""
        self._state = _ConnectionState.CLOSING
        self._server.works(self)
        self._unread, self._body, self._chunks = bytearray(), memoryview(b""), []
        self._reading.end()
        if self._paused_reading:
            self._transport.resume_reading()
        self._transport.write_eof()
        self._expect_sending(SEND_SECONDS if self._paused_writing else LINGER_SECONDS)

    def _expect_sending(self, seconds: float) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._deadline = self._clock() + seconds


def _memory(length: int, tensors_at: int) -> memoryview:
    """Memory for a body, with aligned tensors: numpy reads others at half the speed.

    Pages that are not written are not allocated: a large content-length alone costs no memory.
    """
    memory = np.empty(length + _ALIGNMENT, np.uint8)
    start = -(memory.ctypes.data + tensors_at) % _ALIGNMENT
    return memory[start : start + length].data


def _response_head(answer: HttpAnswer, stays: bool) -> bytes:
    first = _first_lines(answer.status, tuple(answer.headers.items()), stays)
    return b"%bcontent-length: %d\r\ndate: %b\r\n\r\n" % (first, len(answer.content), _date(int(time.time())))


def _stream_head(part: HttpAnswer, chunked: bool, stays: bool) -> bytes:
    headers = {**part.headers, **({"transfer-encoding": "chunked"} if chunked else {})}
    first = _first_lines(part.status, tuple(headers.items()), stays)
    return b"%bdate: %b\r\n\r\n" % (first, _date(int(time.time())))


@lru_cache(maxsize=256)
def _first_lines(status: int, headers: tuple[tuple[str, str], ...], stays: bool) -> bytes:
    connection = ("connection", "keep-alive" if stays else "close")
    lines = "".join([f"{name}: {value}\r\n" for name, value in (*headers, connection)])
    return f"{_status_line(status)}\r\n{lines}".encode("latin-1")


def _status_line(status: int) -> str:
    phrases = {s.value: s.phrase for s in HTTPStatus}
    return f"HTTP/1.1 {status} {phrases.get(status, '')}"


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return email.utils.formatdate(second, usegmt=True).encode()
