"""The entrances of a session with authentication: HTTP in two ways, and gRPC."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import grpc
import numpy as np
from tests.runtime.serving.in_process.stand import SAMPLE, WAYS, Stand, stand
from tests.runtime.serving.ingress.raw_http import connected, post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application

from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, SERVICE

APP: Final = application("plain").model("only")
GRPC: Final = "gRPC"
ENTRANCES: Final = (*WAYS, GRPC)


def allow(running: Stand, clients: AllowedClients | None) -> None:
    """As Serve does it when the operator has changed the frontend's `user_config`."""
    running.session.reconfigure(replace(APP, clients=clients).epoch)


@dataclass(frozen=True)
class Entrance:
    """An entrance of a running session."""

    running: Stand

    async def infer(self, values: Sequence[str]) -> tuple[str, str]:
        """Send an inference request with these values of `authorization`. Returns status and challenge."""
        raise NotImplementedError


class HttpEntrance(Entrance):
    async def infer(self, values: Sequence[str]) -> tuple[str, str]:
        content, headers = infer_body(SAMPLE)
        head, separator, rest = post(content, headers).partition(b"\r\n\r\n")
        lines = [f"Authorization: {value}".encode("latin-1") for value in values]
        async with connected(self.running) as (reader, writer):
            writer.write(b"\r\n".join([head, *lines]) + separator + rest)
            answer = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
            found = dict(line.split(": ", 1) for line in answer.splitlines()[1:-1])
            body = await asyncio.wait_for(reader.readexactly(int(found["content-length"])), 20)
        status = answer.split()[1]
        if status == "401":
            assert (list(json.loads(body)), found["content-type"]) == (["error"], "application/json")
        return status, found.get("www-authenticate", "")


class GrpcEntrance(Entrance):
    async def infer(self, values: Sequence[str]) -> tuple[str, str]:
        message = MESSAGES["ModelInferRequest"](
            model_name="plain", raw_input_contents=[np.zeros(4, np.float32).tobytes()]
        )
        message.inputs.add(name="input", datatype="FP32", shape=[1, 2, 2])
        async with grpc.aio.insecure_channel(str(self.running.session.addresses.grpc)) as channel:
            metadata = [("authorization", value) for value in values]
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(message.SerializeToString(), metadata=metadata)
            code, trailing = await call.code(), await call.trailing_metadata()
        status = {"OK": "200", "UNAUTHENTICATED": "401"}.get(code.name, code.name)
        return status, dict(trailing or ()).get("www-authenticate", "").lower()


@contextlib.asynccontextmanager
async def entrance(name: str, clients: AllowedClients) -> AsyncIterator[Entrance]:
    """One of ENTRANCES of a session that answers these clients."""
    async with stand(APP, way=WAYS.get(name, next(iter(WAYS.values())))) as running:
        allow(running, clients)
        if name != GRPC:
            yield HttpEntrance(running)
            return
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await running.until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        try:
            yield GrpcEntrance(running)
        finally:
            await endpoint.close()
