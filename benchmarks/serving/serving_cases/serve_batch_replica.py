"""A model on one accelerator behind Ray Serve's own `@serve.batch`, with two ways in; one is to be chosen."""

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
from ray import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from partita_runtime.execution.executor import Array, StageExecutor
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.oip import HEADER_LENGTH, decode_request, encode_answer


class _BatchedModel:
    """The model, and the batches that Serve makes for it."""

    def __init__(self, executor: StageExecutor) -> None:
        self._executor = executor
        self._accelerator = threading.Lock()

    def set_batches(self, most: int, wait_seconds: float) -> None:
        """The largest batch, and how long one waits to fill."""
        self._run.set_max_batch_size(most)
        self._run.set_batch_wait_timeout_s(wait_seconds)

    @serve.batch(max_batch_size=1)
    async def _run(self, samples: list[Array]) -> Sequence[Array]:
        (outputs,) = await asyncio.to_thread(self._run_batch, np.stack(samples))
        return list(outputs)

    def _run_batch(self, batch: Array) -> list[Array]:
        with self._accelerator:
            return self._executor.run([batch])


class BytesReplica(_BatchedModel):
    """As Serve's documentation has a deployment written: the request's body is one sample's bytes, the answer too."""

    async def __call__(self, request: Request) -> Response:
        """One sample of 32-bit floats."""
        row = await self._run(np.frombuffer(await request.body(), np.float32))
        return Response(row.tobytes(), media_type="application/octet-stream")


class ServeBatchReplica(_BatchedModel):
    """Answers requests of one sample for the only module of an interface; to be deployed with `serve.ingress()`.

    What reads requests and writes answers is Partita's.
    """

    def __init__(self, executor: StageExecutor, interface: Interface, module: str) -> None:
        super().__init__(executor)
        self._interface = interface
        self._module = module

    def __serve_build_asgi_app__(self) -> Starlette:
        """Called by Serve once the replica is constructed."""
        return Starlette(routes=[Route(f"/v2/models/{self._interface.model_name}/infer", self.infer, methods=["POST"])])

    async def infer(self, request: Request) -> Response:
        """One request of one sample."""
        wanted = decode_request(await request.body(), request.headers.get(HEADER_LENGTH), self._interface)
        row = await self._run(wanted.inputs["input"][0])
        headers, content = encode_answer(wanted, self._interface, {self._module: row[None]})
        return Response(content, headers=headers)
