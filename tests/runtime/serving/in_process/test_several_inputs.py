"""A model of several inputs, from the side of clients: alone, and behind a function."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from tests.runtime.models.sample_models import halves, late
from tests.runtime.serving.in_process.stand import Stand, stand, until
from tests.runtime.serving.plans import application

from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.load.reference import WholeModels
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint

INPUTS = (NamedInput(name="values", shape=(4,)), NamedInput(name="shift", shape=(1,), dtype=DType.INT16))
LATE = replace(
    application("late").model(
        "late", inputs=INPUTS, outputs=((4,),), entrypoint="tests.runtime.models.sample_models:late"
    ),
    stages=2,
)
"""In two stages: the second one needs an input that the first one does not."""
GIVEN = {
    "shift": np.array([[1], [0], [-3]], np.int16),
    "values": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
}


def want(values: np.ndarray, shift: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        answer: np.ndarray = late()(torch.from_numpy(values), torch.from_numpy(shift)).numpy()
        return answer


def infer(module: Any, url: str, given: Mapping[str, np.ndarray], datatypes: Mapping[str, str]) -> np.ndarray:
    inputs = []
    for name, array in given.items():
        inputs.append(module.InferInput(name, list(array.shape), datatypes[name]))
        inputs[-1].set_data_from_numpy(array)
    with module.InferenceServerClient(url) as client:
        answer: np.ndarray = client.infer("late", inputs).as_numpy("late")
        return answer


async def grpc_address(running: Stand) -> Any:
    endpoint = grpc_endpoint(running.session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
    return endpoint


async def test_clients_send_each_input_by_its_name() -> None:
    types = {"values": "FP32", "shift": "INT16"}
    async with stand(LATE) as running:
        metadata = (await running.client.get("/v2/models/late")).json()
        assert metadata["inputs"] == [
            {"name": "values", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "shift", "datatype": "INT16", "shape": [-1, 1]},
        ]
        by_http = await asyncio.to_thread(infer, tritonclient.http, running.url, GIVEN, types)
        endpoint = await grpc_address(running)
        by_grpc = await asyncio.to_thread(infer, tritonclient.grpc, str(running.session.addresses.grpc), GIVEN, types)
        await endpoint.close()
        described = [{"name": n, "datatype": types[n], "shape": a.shape, "data": a.tolist()} for n, a in GIVEN.items()]
        by_json = await running.client.post("/v2/models/late/infer", json={"inputs": described})
        missing = await running.client.post("/v2/models/late/infer", json={"inputs": described[:1]})
    for answer in (by_http, by_grpc, np.reshape(by_json.json()["outputs"][0]["data"], (3, 4))):
        np.testing.assert_allclose(answer, want(GIVEN["values"], GIVEN["shift"]), atol=1e-2)
    assert (missing.status_code, missing.json()["error"]) == (400, "the inputs must be 'values', 'shift', not 'shift'")


@pytest.mark.parametrize(
    "mapped",
    [
        pytest.param({"values": "values", "shift": "shift"}, id="by name"),
        pytest.param({"values": "2", "shift": "1"}, id="by number"),
    ],
)
async def test_a_model_gives_the_next_one_the_outputs_that_the_edge_maps(mapped: dict[str, str]) -> None:
    app = (
        replace(LATE, stages=1)
        .model(
            "halves",
            input=(4,),
            outputs=((1,), (1,), (4,)),
            output_names=("total", "shift", "values"),
            entrypoint="tests.runtime.models.sample_models:halves",
        )
        .edge("halves", "late", **mapped)
    )
    given = {"input": GIVEN["values"]}
    async with stand(app) as running:
        answer = await asyncio.to_thread(infer, tritonclient.http, running.url, given, {"input": "FP32"})
    (expected,) = WholeModels(app.session.spec).answer({"input": GIVEN["values"][0]}).values()
    np.testing.assert_allclose(answer[:1], expected, atol=1e-5)
    with torch.no_grad():
        between = halves()(torch.from_numpy(GIVEN["values"]))
    np.testing.assert_allclose(answer, want(between["values"].numpy(), between["shift"].numpy()), atol=1e-5)


async def test_an_output_that_the_model_does_not_have_fails_the_request() -> None:
    app = LATE.model("first", input=(4,), outputs=((4,),)).edge("first", "late", values="0", shift="shift")
    async with stand(app) as running:
        inputs = [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [0] * 4}]
        answer = await running.client.post("/v2/models/late/infer", json={"inputs": inputs})
    assert answer.status_code == 500
    assert "from first to late maps output shift, which first does not have: its outputs are 0" in answer.text


async def test_a_function_answers_with_each_input_by_its_name() -> None:
    text = TensorSpec(shape=(1,), dtype=DType.BYTES)
    app = LATE.function("reader", "values_and_shift", input=text).edge("reader", "late", most=2)
    async with stand(app) as running:
        given = {"input": np.array([[b"four"], [b"seven.."]], np.object_)}
        answer = await asyncio.to_thread(infer, tritonclient.http, running.url, given, {"input": "BYTES"})
    values = np.repeat(np.array([[4.0], [7.0]], np.float32), 2, axis=0).repeat(4, axis=1)
    np.testing.assert_allclose(answer, want(values, np.array([[1], [-1]] * 2, np.int16)), atol=2e-2)
