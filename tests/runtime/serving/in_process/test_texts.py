"""Texts and encoded files as inputs of functions and as their answers, from the side of clients."""

import asyncio
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.in_process.stand import Stand, stand
from tests.runtime.serving.plans import application

from partita_api.session.module import DType, TensorSpec

APP = (
    application("texts")
    .function("reader", "lengths", of="reader", input=TensorSpec(shape=(2,), dtype=DType.BYTES))
    .function("echo", "echo", of="echo", input=TensorSpec(shape=(2,), dtype=DType.BYTES))
    .model("model", input=(2,), outputs=((3,),))
    .edge("reader", "model")
)
"""reader -> model, and a function alone that answers with texts."""
GIVEN = np.array([[b"one", b""], ["drei \u00fc".encode(), b"4"]], np.object_)


async def asked(running: Stand, given: np.ndarray, binary_in: bool, binary_out: bool) -> triton.InferResult:
    """What tritonclient gets, which blocks and so runs in a thread."""

    def ask() -> triton.InferResult:
        inputs = [triton.InferInput(name, list(given.shape), "BYTES") for name in ("reader", "echo")]
        for tensor in inputs:
            tensor.set_data_from_numpy(given, binary_data=binary_in)
        names = ("model", "echo.texts", "echo.sentence")
        outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in names]
        with triton.InferenceServerClient(running.url) as client:
            return client.infer("texts", inputs, outputs=outputs)

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("binary_in", [True, False], ids=["binary in", "json in"])
@pytest.mark.parametrize("binary_out", [True, False], ids=["binary out", "json out"])
async def test_texts_reach_functions_and_come_back(binary_in: bool, binary_out: bool) -> None:
    def text(element: Any) -> bytes:
        return element if isinstance(element, bytes) else element.encode()

    async with stand(APP) as running:
        result = await asked(running, GIVEN, binary_in, binary_out)
    assert [text(t) for t in result.as_numpy("echo.texts").flat] == [*GIVEN.flat]
    assert [text(t) for t in result.as_numpy("echo.sentence")] == [b"2 texts of 3 bytes", b"2 texts of 8 bytes"]
    assert result.as_numpy("model").shape == (2, 3)


async def test_files_come_back_in_binary_only() -> None:
    pictures = np.array([[b"\xff\xd8\0\0", b"\x89PNG\0"]], np.object_)
    async with stand(APP) as running:
        result = await asked(running, pictures, True, True)
        assert result.as_numpy("echo.texts").tolist() == pictures.tolist()
        with pytest.raises(triton.InferenceServerException, match="ask for binary data"):
            await asked(running, pictures, True, False)
        metadata = (await running.client.get("/v2/models/texts")).json()
    assert metadata["inputs"] == [{"name": name, "datatype": "BYTES", "shape": [-1, 2]} for name in ("reader", "echo")]
