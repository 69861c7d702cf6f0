"""Pages on clients: their Python and curl, against a session that serves in this process."""

import asyncio
import io
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import yaml
from PIL import Image
from tests.docs.pages import blocks, pasted, programs
from tests.docs.shell import Shell
from tests.runtime.serving.in_process.stand import Stand, on_its_own_port, stand, until
from tests.runtime.serving.plans import application

from partita_api.session.module import ImageInput
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint

CLIENT_API, FIRST_SESSION = "docs/reference/client-api.md", "docs/get-started/first-session.md"
TRAFFIC, EVENT_STREAMS = "examples/traffic/README.md", "docs/tasks/event-streams.md"
PIXELS = np.zeros((1, 3, 224, 224), np.float32)


@pytest.fixture
async def traffic() -> AsyncIterator[Stand]:
    """A session that takes images as the page declares them."""
    ((module,),) = [yaml.safe_load(block.text) for block in blocks(CLIENT_API) if block.language == "yaml"]
    image = ImageInput.model_validate(module["image"])
    app = application("traffic").model(module["name"], input=tuple(module["input"]["shape"]), image=image)
    async with stand(app, way=on_its_own_port) as running:
        yield running


async def execute(program: str, **names: Any) -> dict[str, Any]:
    """The names that the program leaves. tritonclient blocks, so it runs in a thread."""
    await asyncio.to_thread(exec, program, names)
    return names


async def test_a_client_of_triton(traffic: Stand) -> None:
    by_serve, own_port, _grpc = programs(CLIENT_API)
    address = traffic.url.removesuffix("/default/traffic")
    left = await execute(by_serve.replace("serve.example.com:8000", address), pixels=PIXELS)
    assert left["answer"].as_numpy("detector") is not None
    left = await execute(own_port.replace("10.0.0.7:9001", address), triton=left["triton"])
    assert await asyncio.to_thread(left["client"].is_model_ready, "traffic")


async def test_a_client_of_grpc(traffic: Stand) -> None:
    endpoint = grpc_endpoint(traffic.session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: traffic.session.addresses.grpc, "gRPC is listened for")
    *_, program = programs(CLIENT_API)
    left = await execute(program.replace("10.0.0.7:9000", str(traffic.session.addresses.grpc)))

    given = tritonclient.grpc.InferInput("input", [*PIXELS.shape], "FP32")
    given.set_data_from_numpy(PIXELS)
    answer = await asyncio.to_thread(left["client"].infer, "traffic", [given])
    assert answer.as_numpy("detector") is not None
    left["client"].close()
    await endpoint.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on PATH: apt-get install curl")
@pytest.mark.parametrize("page", [CLIENT_API, TRAFFIC, EVENT_STREAMS])
async def test_a_photo_by_curl(page: str, traffic: Stand, tmp_path: Path) -> None:
    *_, command = pasted(page)
    file = io.BytesIO()
    Image.new("RGB", (40, 20), (255, 0, 0)).save(file, "JPEG")
    (tmp_path / "photo.jpg").write_bytes(file.getvalue())
    address = traffic.url.removesuffix("/default/traffic")

    command = re.sub(r"\$\(kubectl .+?\)", f"http://{address}/default/traffic", command)
    answer = await asyncio.to_thread(Shell(tmp_path).paste, command.replace("serve.example.com:8000", address))
    assert '"detector"' in answer
    assert ("event: output" in answer) == (page == EVENT_STREAMS)


async def test_outputs_in_python(traffic: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = programs(EVENT_STREAMS)
    address = traffic.url.removesuffix("/default/traffic")
    await execute(program.replace("serve.example.com:8000", address))
    assert capsys.readouterr().out == "detector (1, 2)\n"


async def test_the_client_of_a_first_session(capsys: pytest.CaptureFixture[str]) -> None:
    model, program = programs(FIRST_SESSION)
    assert (await execute(model))["classifier"] is not None
    app = application("shop").model("classifier", input=(3, 96, 96), outputs=((10,),))
    async with stand(app, way=on_its_own_port) as running:
        address = running.url.removesuffix("/default/shop")
        await execute(program.replace("partita-serve-svc.default.svc:8000", address))
    assert len(capsys.readouterr().out.split()) >= 10
