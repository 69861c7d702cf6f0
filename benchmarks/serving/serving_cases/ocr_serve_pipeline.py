"""A baseline of the ocr benchmark: a pipeline of Ray Serve, with a deployment for each network and `@serve.batch`.

The functions between the networks are those of the example. The networks are those of the package, on inputs without
padding.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnxruntime
from ocr import functions, models
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from partita_runtime.execution.executor import Array

NAME = "networks"
ENVIRONMENT = {"RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1)}
"""Of the Ray cluster: by default replicas refuse messages of more than 4 MiB, which pictures have."""
NETWORKS = ("detector", "classifier", "recognizer")


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    replicas: int
    """Of the detector, of the recognizer, and of the ingress with the functions. The classifier needs one."""
    threads: int
    """Of a network."""
    batch: int
    """The most samples of a batch."""


def settings(cores: int) -> tuple[Setting, ...]:
    """What is tried: as many replicas as cores, or as many threads, with batches and without."""
    return (Setting(cores, 1, 8), Setting(cores, 1, 1), Setting(1, cores, 8), Setting(2 * cores, 1, 8))


def networks_application(setting: Setting) -> dict[str, Any]:
    """The pipeline, as Serve's configuration has it."""
    counts = {"Ingress": setting.replicas, **dict.fromkeys(NETWORKS, setting.replicas), "classifier": 1}
    return {
        "name": NAME,
        "route_prefix": f"/{NAME}",
        "import_path": "benchmarks.serving.serving_cases.ocr_serve_pipeline:application",
        "args": asdict(setting),
        "deployments": [
            {
                "name": name,
                "num_replicas": count,
                "max_ongoing_requests": 64,
                "logging_config": {"enable_access_log": False},
                "ray_actor_options": {"num_cpus": 0.05},
            }
            for name, count in counts.items()
        ],
    }


def application(args: dict[str, int]) -> serve.Application:
    """Built by Serve."""
    setting = Setting(**args)
    networks = [serve.deployment(Network, name=name).bind(name, setting.threads, setting.batch) for name in NETWORKS]
    return serve.deployment(Ingress, name="Ingress").bind(*networks)


class Network:
    """A network of the package, on inputs of any size."""

    def __init__(self, name: str, threads: int, batch: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        graph = models.original(name).SerializeToString()
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._one = threading.Lock()
        self._batch.set_max_batch_size(batch)

    async def __call__(self, sample: Array) -> list[Array]:
        """The network's answer for one sample, without a batch dimension."""
        answer: list[Array] = await self._batch(sample)
        return answer

    @serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0)
    async def _batch(self, samples: list[Array]) -> list[list[Array]]:
        return await asyncio.to_thread(self._run, samples)

    def _run(self, samples: Sequence[Array]) -> list[list[Array]]:
        """Samples of one size are one batch of the network."""
        answers: dict[int, list[Array]] = {}
        for shape in dict.fromkeys(sample.shape for sample in samples):
            numbers = [number for number, sample in enumerate(samples) if sample.shape == shape]
            with self._one:
                outputs = self._session.run(None, {self._input: np.stack([samples[number] for number in numbers])})
            answers |= {number: [output[row] for output in outputs] for row, number in enumerate(numbers)}
        return [answers[number] for number in range(len(samples))]


class Ingress:
    """Answers encoded pictures with their lines of text, as JSON."""

    def __init__(self, detector: DeploymentHandle, classifier: DeploymentHandle, recognizer: DeploymentHandle) -> None:
        self._detector = detector
        self._classifier = classifier
        self._recognizer = recognizer

    async def __call__(self, request: Request) -> Response:
        """The body is the picture."""
        picture = np.array(await request.body(), np.object_)
        prepared = await asyncio.to_thread(functions.prepare, {"input": picture}, {})
        (detector,) = (name for name in prepared if name.startswith("detector"))
        _, (height, width) = functions.unpacked(prepared["crops"])
        (probabilities,) = await self._detector.remote(np.ascontiguousarray(prepared[detector][0][:, :height, :width]))
        found = await _called(functions.crops, {"prepare": [prepared["crops"][None]], detector: [probabilities[None]]})
        turned = await _called(
            functions.turn,
            {"crops": [found["turn"][None]], "classifier": await _all(self._classifier, found["classifier"])},
        )
        read = await _all(self._recognizer, turned["recognizer"])
        upstream = {"prepare": [prepared["text"][None]], "crops": [found["text"][None]], "recognizer": read}
        return JSONResponse((await _called(functions.text, upstream))["lines"].tolist())


async def _called(function: Any, upstream: Mapping[str, Any]) -> Any:
    return await asyncio.to_thread(function, {}, upstream)


async def _all(network: DeploymentHandle, samples: Sequence[Array]) -> list[list[Array]]:
    """Each of the network's outputs for all samples."""
    answers = await asyncio.gather(*(network.remote(sample) for sample in samples))
    return [list(output) for output in zip(*answers, strict=True)]
