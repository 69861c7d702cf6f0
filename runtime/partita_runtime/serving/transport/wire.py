"""The messages between frontends and stage replicas, and their framing: pure, over bytes.

A frame is a prefix (magic, header length, body length), a JSON header, and the raw bytes of the tensors that the
header lists, in its order, C-contiguous and little-endian. Nothing is unpickled. A header is checked in full, with
lengths, shapes and element types, before memory is allocated for a tensor. Tensors are then received in place.
"""

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, is_within
from partita_runtime.serving.transport.receive_buffers import ReceiveBuffers

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 1 << 30
MAX_REASON: Final = 2048
"""Most characters of a failure's reason."""
_MAX_FIELD: Final = 200
"""Most characters of a field's path in an error: a peer may send any name."""

BUFFERS: Final = ReceiveBuffers()
"""Memory of the large tensors that this process receives. Decoders are used on its event loop."""

_MAGIC: Final = b"PTA8"
"""Begins every frame, and has the version of the protocol: one more after each change of a message."""
_PREFIX: Final = struct.Struct("<4sIQ")

Array = NDArray[Any]
Chunk = bytes | memoryview


class WireError(Exception):
    """The bytes of a stream are not a valid message, or the message is not expected; the stream must be closed."""


class WireModel(BaseModel):
    """A message or a part of one. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Id = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=256)]
Micros = Annotated[int, Field(ge=0, lt=2**63)]


def _number(dtype: DType) -> DType:
    if dtype not in NUMPY_DTYPES:
        raise ValueError(f"only tensors of numbers are sent, not {dtype}")
    return dtype


class TensorHeader(WireModel):
    """Element type and shape of one tensor, with its batch dimension."""

    dtype: Annotated[DType, AfterValidator(_number)]
    shape: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=9)]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * NUMPY_DTYPES[self.dtype].itemsize


_Tensors = Annotated[tuple[TensorHeader, ...], Field(max_length=64)]


class PeerAddress(WireModel):
    """Where a process listens, and the token that a connection to it begins with."""

    host: Annotated[str, Field(max_length=1024)]
    """The address of its machine, or the name of an actor (`actor_calls`)."""
    port: int = Field(ge=1, lt=65536)
    token: Name


class Hello(WireModel):
    """First message on a connection to a replica."""

    kind: Literal["hello"] = "hello"
    frontend: Name | None = None
    """Id of the frontend that connects; None for a replica, which only forwards batches."""


class Welcome(WireModel):
    """The replica's answer to a frontend's Hello: it takes batches now."""

    kind: Literal["welcome"] = "welcome"


class Ping(WireModel):
    """A frontend asks whether the replica's process still runs."""

    kind: Literal["ping"] = "ping"


class Pong(WireModel):
    """The replica's process runs."""

    kind: Literal["pong"] = "pong"


class Reserve(WireModel):
    """A frontend tells each stage's replica what is reserved for a batch, before it sends the batch to the first one.

    All times are on the frontend's clock (microseconds).
    """

    kind: Literal["reserve"] = "reserve"
    batch_id: Id
    sent: Micros
    """When this message was sent, for the difference of the clocks."""
    start: Micros
    latest: Micros
    """If the batch starts later here, it misses its deadline."""
    sends_from: Micros = 0
    """From when it may be sent on: the network is free from then until its reserved transfer."""


class Withdraw(WireModel):
    """A batch is lost: its stages need not wait for it any more, nor run it."""

    kind: Literal["withdraw"] = "withdraw"
    batch_id: Id


class RunBatch(WireModel):
    """A batch to run: to a first stage from the frontend, to a later one from the stage before."""

    kind: Literal["batch"] = "batch"
    batch_id: Id
    frontend: Name
    path: Annotated[tuple[PeerAddress, ...], Field(max_length=8)] = ()
    """The replicas of the stages after this one; the last stage answers the frontend."""
    held_micros: Micros = 0
    """How long the stage before has held it, until its transfer could begin."""
    tensors: _Tensors


class Taken(WireModel):
    """A later stage has received a whole batch, which no longer needs the stage before."""

    kind: Literal["taken"] = "taken"
    batch_id: Id
    held_micros: Micros
    """As the batch said."""


class Report(WireModel):
    """A stage, but not the last one, has run a batch."""

    kind: Literal["report"] = "report"
    batch_id: Id
    waited_micros: Micros
    """Time between the batch's arrival at the replica and its execution."""
    ran_micros: Micros


class BatchAnswer(WireModel):
    """The last stage has run a batch; its outputs follow."""

    kind: Literal["answer"] = "answer"
    batch_id: Id
    waited_micros: Micros
    ran_micros: Micros
    tensors: _Tensors


class Lost(WireModel):
    """A stage has run a batch, but the replica of the next stage cannot be reached."""

    kind: Literal["lost"] = "lost"
    batch_id: Id
    reason: Annotated[str, Field(max_length=MAX_REASON)]


class Failed(WireModel):
    """A batch could not be run."""

    kind: Literal["failed"] = "failed"
    batch_id: Id
    reason: Annotated[str, Field(max_length=MAX_REASON)]


class Draining(WireModel):
    """The replica takes no new batches, finishes those it has, and ends once its frontends have left."""

    kind: Literal["draining"] = "draining"


StageMessage = (
    Hello
    | Welcome
    | Ping
    | Pong
    | Reserve
    | Withdraw
    | RunBatch
    | Taken
    | Report
    | BatchAnswer
    | Lost
    | Failed
    | Draining
)

MessageT = TypeVar("MessageT", bound=WireModel)


@dataclass(frozen=True)
class Dialect(Generic[MessageT]):
    """Which messages a stream carries."""

    messages: TypeAdapter[MessageT]
    max_header_bytes: int


STAGE_DIALECT: Final[Dialect[StageMessage]] = Dialect(
    TypeAdapter(Annotated[StageMessage, Field(discriminator="kind")]), MAX_HEADER_BYTES
)
"""The messages between frontends and stage replicas."""

_DTYPE_NAMES: Final = {dtype: DType(name) for name, dtype in NUMPY_DTYPES.items()}


def tensor_header(shape: Sequence[int], dtype: np.dtype[Any]) -> TensorHeader:
    """The header of a tensor. Raises WireError for an element type that streams do not carry."""
    try:
        return TensorHeader(dtype=_DTYPE_NAMES[dtype], shape=tuple(shape))
    except KeyError:
        raise WireError(f"element type {dtype} cannot be sent; {', '.join(NUMPY_DTYPES)} can") from None


def encode(message: WireModel, arrays: Sequence[Array] = (), max_header_bytes: int = MAX_HEADER_BYTES) -> list[Chunk]:
    """The frame of `message` as chunks to write in order; `arrays` are not copied.

    `arrays` are the message's tensors in order, each whole or in slices along its first dimension. Raises WireError
    if they are not as many bytes as its tensors, or if the frame would be too large.
    """
    header = message.model_dump_json().encode()
    body = _body_bytes(message)
    given = sum(array.nbytes for array in arrays)
    if given != body:
        raise WireError(f"the message lists tensors of {body} bytes, but {given} bytes were given")
    if len(header) > max_header_bytes or body > MAX_BODY_BYTES:
        raise WireError(
            f"a header of {len(header)} or a body of {body} bytes is above {max_header_bytes} or {MAX_BODY_BYTES}"
        )
    chunks: list[Chunk] = [_PREFIX.pack(_MAGIC, len(header), body) + header]
    chunks += [_bytes_of(np.ascontiguousarray(array)) for array in arrays if array.nbytes]
    return chunks


def check_tensors(
    tensors: Sequence[TensorHeader], specs: Sequence[TensorSpec], most: int, *, any_size: bool = False
) -> None:
    """Raise WireError unless `tensors` are one batch of 1 to `most` samples of `specs`, or with `any_size` smaller."""
    batch = tensors[0].shape[0] if tensors and tensors[0].shape else 0
    fits = len(tensors) == len(specs) and all(
        tensor.dtype == spec.dtype and (is_within if any_size else operator.eq)(tensor.shape, (batch, *spec.shape))
        for tensor, spec in zip(tensors, specs, strict=True)
    )
    if not 1 <= batch <= most or not fits:
        given = ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors) or "nothing"
        expected = ", ".join(f"{spec.dtype}{['b', *spec.shape]}" for spec in specs)
        raise WireError(f"got {given}, not {expected} with b from 1 to {most}")


class Decoder(Generic[MessageT]):
    """Decodes a byte stream into messages. Tensors are received in place, without a copy.

    Fill the start of `buffer()`, then call `received` with the number of bytes.
    """

    def __init__(
        self, dialect: Dialect[MessageT], admit: Callable[[MessageT], None], max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        """`admit` may refuse a message by raising WireError, before its tensors are received."""
        self._dialect = dialect
        self._admit = admit
        self._max_body = max_body_bytes
        self._header = memoryview(bytearray(min(dialect.max_header_bytes, MAX_HEADER_BYTES)))
        self._target = self._header[: _PREFIX.size]
        """Where the bytes of the current part go: of the prefix, the header, or a tensor."""
        self._filled = 0
        self._body = 0
        self._in_prefix = True
        self._message: MessageT | None = None
        self._arrays: list[Array] = []
        self._pending: list[memoryview] = []
        """The memory of tensors that are still to be received, the last one first."""

    def _begin(self) -> None:
        self._target = self._header[: _PREFIX.size]
        self._filled = 0
        self._body = 0
        self._in_prefix = True
        self._message = None
        self._arrays = []
        self._pending = []

    def buffer(self) -> memoryview:
        """Where to write the next bytes; never empty."""
        return self._target[self._filled :]

    def received(self, count: int) -> tuple[MessageT, list[Array]] | None:
        """`count` bytes were written to `buffer()`; the message that is complete now, if there is one.

        Raises WireError for bytes that are not a message, and for a message that is not admitted.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._in_prefix:
            self._read_prefix()
            return None
        if self._message is None:
            self._message = self._read_header()
            self._arrays = [BUFFERS.empty(t.shape, NUMPY_DTYPES[t.dtype]) for t in _tensors(self._message)]
            self._pending = [_bytes_of(array) for array in reversed(self._arrays) if array.nbytes]
        if self._pending:
            self._target, self._filled = self._pending.pop(), 0
            return None
        complete = self._message, self._arrays
        self._begin()
        return complete

    def _read_prefix(self) -> None:
        magic, header, self._body = _PREFIX.unpack(self._target)
        if magic != _MAGIC:
            raise WireError("the peer does not speak this version of the protocol")
        most = self._dialect.max_header_bytes
        if not 0 < header <= most or self._body > self._max_body:
            raise WireError(f"a header of {header} or a body of {self._body} bytes is above {most} or {self._max_body}")
        if header > len(self._header):
            self._header = memoryview(bytearray(header))
        self._target, self._filled, self._in_prefix = self._header[:header], 0, False

    def _read_header(self) -> MessageT:
        try:
            message = self._dialect.messages.validate_json(bytes(self._target))
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            field = ".".join(map(str, found["loc"]))[:_MAX_FIELD]
            raise WireError(f"not a message: {field or 'its header'}: {found['msg']}") from None
        if _body_bytes(message) != self._body:
            raise WireError(f"the header lists {_body_bytes(message)} bytes of tensors, but the body has {self._body}")
        self._admit(message)
        return message


def _tensors(message: WireModel) -> tuple[TensorHeader, ...]:
    return message.tensors if isinstance(message, RunBatch | BatchAnswer) else ()


def _body_bytes(message: WireModel) -> int:
    return sum(tensor.nbytes for tensor in _tensors(message))


def _bytes_of(array: Array) -> memoryview:
    return array.data.cast("B")
