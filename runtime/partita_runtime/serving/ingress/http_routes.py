"""What a request asks for: the operation of a path and a method, with the model and version in it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from partita_runtime.serving.protocol.inference import RequestError


class Operation(StrEnum):
    """What a request asks the service to do. The values are labels of a metric."""

    INFER = "infer"
    PREDICT = "predict"
    """Inference by V1."""
    V1_LIVE = "v1_live"
    V1_MODELS = "v1_models"
    V1_MODEL = "v1_model"
    SERVER = "server"
    LIVE = "live"
    READY = "ready"
    MODEL = "model"
    MODEL_READY = "model_ready"
    CONFIGURATION = "configuration"
    STATISTICS = "statistics"
    INDEX = "index"
    OPENAPI = "openapi"
    SIGNALS = "signals"
    METRICS = "metrics"
    CHECK = "check"
    """A sample of a quality check, to be executed on one plan."""
    # Refused, for the reasons in `triton.REFUSALS`:
    REPOSITORY = "repository"
    SHARED_MEMORY = "shared_memory"
    TRACE = "trace"
    LOGGING = "logging"


@dataclass(frozen=True, slots=True)
class HttpHead:
    """The method, path and headers of a request."""

    method: str
    path: str
    """Relative to the session, such as /v2/models/traffic/infer; percent-decoded, without a query."""
    headers: Mapping[str, str]
    """By name in lower case."""
    base_url: str = ""
    """The part of the client's URL before the path, such as /default/traffic."""
    credentials: tuple[str, ...] = ()
    """The values of all its headers `authorization`."""


INFERENCE: Final = frozenset({Operation.INFER, Operation.PREDICT})
"""Operations with tensors."""


class Route(NamedTuple):
    """What a path asks for."""

    operation: Operation
    model: str | None = None
    version: str | None = None
    plan: str | None = None
    """The plan that executes a sample."""


class MethodError(RequestError):
    """The operation has other methods (405)."""

    def __init__(self, head: HttpHead, allowed: Sequence[str]) -> None:
        super().__init__(405, f"{head.method} {head.path}: Method Not Allowed")
        self.allowed = allowed


_SERVER_OPERATIONS: Final[Mapping[str, Operation]] = {
    "": Operation.V1_LIVE,
    "v1/models": Operation.V1_MODELS,
    "v2": Operation.SERVER,
    "v2/health/live": Operation.LIVE,
    "v2/health/ready": Operation.READY,
    "v2/repository/index": Operation.INDEX,
    "v2/trace/setting": Operation.TRACE,
    "v2/logging": Operation.LOGGING,
    "openapi.json": Operation.OPENAPI,
    "partita/signals": Operation.SIGNALS,
    "partita/metrics": Operation.METRICS,
}
_MODEL_OPERATIONS: Final[Mapping[str, Operation]] = {
    "": Operation.MODEL,
    "ready": Operation.MODEL_READY,
    "config": Operation.CONFIGURATION,
    "stats": Operation.STATISTICS,
    "infer": Operation.INFER,
}
_PREDICT: Final = ":predict"
_SHARED_MEMORY: Final = frozenset({"systemsharedmemory", "cudasharedmemory", "xlasharedmemory"})
_ALL_STATISTICS: Final = "stats"
"""Triton's path of the statistics of all models: a model of this name comes first."""
_READING: Final = ("GET", "HEAD")
_METHODS: Final[Mapping[Operation, Sequence[str]]] = {
    Operation.INFER: ("POST",),
    Operation.PREDICT: ("POST",),
    Operation.CHECK: ("POST",),
    Operation.INDEX: ("POST",),
    Operation.REPOSITORY: ("POST",),
    Operation.SHARED_MEMORY: (*_READING, "POST"),
    Operation.TRACE: (*_READING, "POST"),
    Operation.LOGGING: (*_READING, "POST"),
}
"""The methods of an operation; the others are read."""


def route_of(head: HttpHead, session: str) -> Route:
    """What a request asks of the session of this name.

    Raises RequestError (404) for an unknown path, and MethodError.
    """
    route = _route(head.path.strip("/").split("/"), session)
    if route is None:
        raise not_found(head)
    allowed = _METHODS.get(route.operation, _READING)
    if head.method not in allowed:
        raise MethodError(head, allowed)
    return route


def not_found(head: HttpHead) -> RequestError:
    """The error for a path that is not served."""
    return RequestError(404, f"{head.method} {head.path}: Not Found")


def _route(parts: Sequence[str], session: str) -> Route | None:
    operation = _SERVER_OPERATIONS.get("/".join(parts))
    match parts:
        case _ if operation is not None:
            return Route(operation)
        case ["v1", "models", name] if name.endswith(_PREDICT):
            return Route(Operation.PREDICT, name.removesuffix(_PREDICT))
        case ["v1", "models", name] if ":" not in name:
            return Route(Operation.V1_MODEL, name)
        case ["partita", "check", plan]:
            return Route(Operation.CHECK, plan=plan)
        case ["v2", "models", name] if name == _ALL_STATISTICS != session:
            return Route(Operation.STATISTICS)
        case ["v2", "models", _, "trace", "setting"]:
            return Route(Operation.TRACE)
        case ["v2", "models", model, "versions", version, *rest]:
            return _model_route(model, version, rest)
        case ["v2", "models", model, *rest]:
            return _model_route(model, None, rest)
        case ["v2", "repository", "models", _, "load" | "unload"]:
            return Route(Operation.REPOSITORY)
        case ["v2", kind, *_] if kind in _SHARED_MEMORY:
            return Route(Operation.SHARED_MEMORY)
        case _:
            return None


def _model_route(model: str, version: str | None, rest: Sequence[str]) -> Route | None:
    operation = _MODEL_OPERATIONS.get("/".join(rest))
    return None if operation is None else Route(operation, model, version)
