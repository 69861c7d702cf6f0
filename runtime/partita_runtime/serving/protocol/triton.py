"""What Triton's clients ask beyond the Open Inference Protocol, as JSON objects that gRPC's messages also take. Pure.

Specifications: https://github.com/triton-inference-server/server/tree/main/docs/protocol (model configuration,
statistics, model repository).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from partita_runtime.serving.protocol.inference import MODEL_VERSION, PLATFORM, Body, RequestError
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface
from partita_runtime.serving.protocol.variable_size import described

REFUSALS: Final[Mapping[str, str]] = {
    "repository": "models are managed by Kubernetes: change the InferenceSession with kubectl apply",
    "shared_memory": "shared memory is not supported: send tensors in the request",
    "trace": "traces are a setting of the platform (tracing in the chart), and cannot be changed by clients",
    "logging": "logs are a setting of the platform (logging in the chart), and cannot be changed by clients",
}
"""Why requests of Triton's other extensions are refused, by what they are about."""

_MOST_INDEX_BYTES: Final = 64 * 1024
"""Most bytes of a request for the repository's index."""


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """How many requests ended in some way, and how long they took."""

    count: int = 0
    micros: int = 0
    """From their arrival to their end, summed up."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What has been measured of a session's requests since its frontends started."""

    succeeded: RequestTotals
    failed: RequestTotals
    """Requests that got an error after they were accepted."""
    samples: int
    """Samples of the requests that succeeded."""
    last_request_millis: int
    """When the last request arrived, in milliseconds since 1970; 0 if there was none."""


def model_configuration(interface: Interface) -> dict[str, Any]:
    """The session as a model's configuration. Dimensions have no batch: samples of a request, rows of an answer."""
    return {
        "name": interface.model_name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": MAX_SAMPLES,
        "input": [_tensor(name, spec.dtype.value, described(spec)) for name, spec in interface.inputs.items()],
        "output": [_tensor(output.name, output.datatype, output.shape[1:]) for output in interface.outputs],
        "dynamic_batching": {},
    }


def model_statistics(model: str, measured: Statistics) -> dict[str, Any]:
    """The statistics of the session as a model. Times that frontends do not measure are 0.

    A request is one execution of the whole graph, as Triton counts the requests of an ensemble.
    """
    unmeasured = ("compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
    stats = {
        "name": model,
        "version": MODEL_VERSION,
        "last_inference": measured.last_request_millis,
        "inference_count": measured.samples,
        "execution_count": measured.succeeded.count,
        "inference_stats": {
            "success": _duration(measured.succeeded),
            "fail": _duration(measured.failed),
            # Each was in the scheduler's queue. perf_analyzer finds the model's version by this count.
            "queue": _duration(RequestTotals(measured.succeeded.count)),
            **{name: _duration(RequestTotals()) for name in unmeasured},
        },
        "batch_stats": [],
    }
    return {"model_stats": [stats]}


def repository_index(model: str, unready: str, only_ready: bool) -> list[dict[str, str]]:
    """The repository, which has one model. `unready` is why the session does not answer; empty if it does."""
    if unready and only_ready:
        return []
    return [
        {"name": model, "version": MODEL_VERSION, "state": "UNAVAILABLE" if unready else "READY", "reason": unready}
    ]


class _IndexRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    ready: bool = False


def asks_only_ready(body: Body) -> bool:
    """Whether a request for the repository's index asks only for ready models.

    Raises RequestError: 413 for a large body, 400 for anything but JSON.
    """
    if len(body) > _MOST_INDEX_BYTES:
        raise RequestError(413, f"a request for the index has at most {_MOST_INDEX_BYTES} bytes")
    if not body:
        return False
    try:
        return _IndexRequest.model_validate_json(bytes(body)).ready
    except ValidationError:
        raise RequestError(400, 'not a request for the index; send nothing, or {"ready": true}') from None


def _tensor(name: str, datatype: str, dims: tuple[int, ...]) -> dict[str, Any]:
    kind = "STRING" if datatype == "BYTES" else datatype
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": [*dims]}


def _duration(totals: RequestTotals) -> dict[str, int]:
    return {"count": totals.count, "ns": totals.micros * 1000}
