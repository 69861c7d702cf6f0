"""What Partita is compared with: emulated GPUs behind Ray Serve's own `@serve.batch`, answering the same requests."""

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from benchmarks.serving_cases.emulated import MODULE, OUTPUT, POOL, EmulatedSession
from ray import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from partita_api.inferencesession import BatchingPolicy
from partita_api.module import TensorSpec
from partita_runtime.execution.emulated import EmulatedExecutor
from partita_runtime.execution.stage_build import EmulatedStage
from partita_runtime.serving.interface import Interface
from partita_runtime.serving.oip import HEADER_LENGTH, decode_request, encode_answer


@dataclass(frozen=True)
class Setting:
    """The GPUs and the requests, the same for all that are compared."""

    gpus: int
    alpha_micros: int
    beta_micros: int
    slo_ms: int
    allowance_ms: int
    """What Partita leaves of the SLO for the way between the client and its frontend."""
    batch_size: int
    """The largest batch that a GPU takes."""
    payload_bytes: int

    @property
    def input(self) -> TensorSpec:
        """One sample."""
        return TensorSpec(shape=(max(1, self.payload_bytes // 4),))

    @property
    def stage(self) -> EmulatedStage:
        """The model on one GPU."""
        latency = tuple(self.alpha_micros * b + self.beta_micros for b in range(1, self.batch_size + 1))
        return EmulatedStage(latency_micros=latency, inputs=(self.input,), outputs=(OUTPUT,))

    @property
    def interface(self) -> Interface:
        """What all systems take and give."""
        return Interface("bench", self.session(BatchingPolicy.EAGER).session.spec, {MODULE: self.stage.outputs})

    def session(self, policy: BatchingPolicy, frontends: int = 1) -> EmulatedSession:
        """The session of one model, a replica on each GPU."""
        return EmulatedSession(
            name="bench",
            gpus=self.gpus,
            alpha_micros=self.alpha_micros,
            beta_micros=self.beta_micros,
            slo_ms=self.slo_ms - self.allowance_ms,
            batch_size=self.batch_size,
            input=self.input,
            policy=policy,
            http_port=0,
            frontends=frontends,
        )


@dataclass(frozen=True)
class BatchSetting:
    """How `@serve.batch` is set."""

    batch_size: int
    wait_ms: float
    """How long it waits for a batch to fill."""


def plain_serve(setting: Setting, batches: BatchSetting) -> dict[str, Any]:
    """The Ray Serve application, under /plain; other `batches` take effect in place."""
    return {
        "name": "plain",
        "route_prefix": "/plain",
        "import_path": "benchmarks.serving_cases.plain_serve:application",
        "args": {"setting": json.dumps(asdict(setting))},
        "deployments": [
            {
                "name": "PlainServe",
                "num_replicas": setting.gpus,
                "max_ongoing_requests": 4 * setting.batch_size,
                "user_config": asdict(batches),
                "logging_config": {"enable_access_log": False},
                "ray_actor_options": {"num_cpus": 0.1, "resources": {f"partita-pool-{POOL}": 1}},
            }
        ],
    }


def application(args: dict[str, str]) -> serve.Application:
    """Built by Serve from the configuration's `args`."""
    deployment = serve.deployment(serve.ingress()(PlainServe), name="PlainServe")
    return deployment.bind(Setting(**json.loads(args["setting"])))


class PlainServe:
    """One emulated GPU."""

    def __init__(self, setting: Setting) -> None:
        self._interface = setting.interface
        self._executor = EmulatedExecutor(setting.stage)
        self._gpu = threading.Lock()

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Called by Serve."""
        batches = BatchSetting(**user_config)
        self._run.set_max_batch_size(batches.batch_size)
        self._run.set_batch_wait_timeout_s(batches.wait_ms / 1000)

    def __serve_build_asgi_app__(self) -> Starlette:
        """Called by Serve once the replica is constructed."""
        return Starlette(routes=[Route("/v2/models/bench/infer", self.infer, methods=["POST"])])

    async def infer(self, request: Request) -> Response:
        """One request of one sample."""
        wanted = decode_request(await request.body(), request.headers.get(HEADER_LENGTH), self._interface)
        row = await self._run(wanted.inputs["input"][0])
        headers, content = encode_answer(wanted, self._interface, {MODULE: row[None]})
        return Response(content, headers=headers)

    @serve.batch(max_batch_size=1)
    async def _run(self, samples: list[np.ndarray]) -> Sequence[np.ndarray]:
        (outputs,) = await asyncio.to_thread(self._run_on_gpu, np.stack(samples))
        return list(outputs)

    def _run_on_gpu(self, batch: np.ndarray) -> list[np.ndarray]:
        with self._gpu:
            return self._executor.run([batch])
