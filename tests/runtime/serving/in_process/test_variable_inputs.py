"""A model of several inputs that vary together: a size class for each sample, and the padding of each input."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand, until
from tests.runtime.serving.models import masked_mean
from tests.runtime.serving.plans import Application, application

from partita_api.fields.number import SignedNumber
from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint

INPUTS = (
    NamedInput(name="ids", shape=(16,), dtype=DType.INT64, variable_dimension=0, padding=SignedNumber("99")),
    NamedInput(name="mask", shape=(16,), dtype=DType.INT64, variable_dimension=0),
)


def encoder() -> Application:
    """A model of texts of up to 16 tokens, with a mask."""
    entrypoint, vocabularies = "tests.runtime.serving.models:masked_mean", (100, 0)
    return application("encoder").model(
        "encode",
        inputs=INPUTS,
        sizes=(4, 16),
        outputs=((3,),),
        vocabularies=vocabularies,
        entrypoint=entrypoint,
    )


def behind_a_tokenizer(**kwargs: int) -> Application:
    """The same model for as many texts as the request has lengths."""
    return (
        encoder()
        .function("tokenize", "tokens", input=TensorSpec(shape=(4,), dtype=DType.INT64), **kwargs)
        .edge("tokenize", "encode", most=4)
    )


def given(length: int, samples: int = 1) -> dict[str, np.ndarray]:
    return {
        "ids": np.random.default_rng(length).integers(0, 99, (samples, length)),
        "mask": np.ones((samples, length), np.int64),
    }


def answer_of(ids: np.ndarray) -> np.ndarray:
    """What the whole model answers for samples without padding."""
    with torch.no_grad():
        answer: np.ndarray = masked_mean()(torch.from_numpy(ids), torch.ones(ids.shape, dtype=torch.int64)).numpy()
    return answer


def infer(module: Any, url: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    tensors = [module.InferInput(name, list(array.shape), "INT64") for name, array in inputs.items()]
    for tensor, array in zip(tensors, inputs.values(), strict=True):
        tensor.set_data_from_numpy(array)
    with module.InferenceServerClient(url) as client:
        answer: np.ndarray = client.infer("encoder", tensors).as_numpy("encode")
        return answer


async def in_json(running: Stand, inputs: Mapping[str, np.ndarray]) -> Any:
    described = [{"name": n, "datatype": "INT64", "shape": a.shape, "data": a.tolist()} for n, a in inputs.items()]
    return await running.client.post("/v2/models/encoder/infer", json={"inputs": described})


@pytest.fixture
async def running() -> AsyncIterator[Stand]:
    async with stand(encoder()) as found:
        yield found


async def test_each_sample_gets_a_class_and_its_padding_changes_no_answer(running: Stand) -> None:
    for length in (1, 3, 4, 5, 16):
        inputs = given(length, samples=2)
        answer = await asyncio.to_thread(infer, tritonclient.http, running.url, inputs)
        np.testing.assert_allclose(answer, answer_of(inputs["ids"]), atol=1e-5)
    metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    for size, count in ((4, 6.0), (16, 4.0)):
        assert (
            f'partita_size_class_samples_total{{module="encode-s{size}",session="default/encoder"}} {count}' in metrics
        )


async def test_clients_see_inputs_of_variable_size(running: Stand) -> None:
    metadata = (await running.client.get("/v2/models/encoder")).json()
    assert metadata["inputs"] == [{"name": n, "datatype": "INT64", "shape": [-1, -1]} for n in ("ids", "mask")]


async def test_inputs_of_different_sizes_are_refused(running: Stand) -> None:
    uneven = {"ids": given(3)["ids"], "mask": given(5)["mask"]}
    want = "inputs 'ids', 'mask' must have the same size, not 3 and 5"
    answer = await in_json(running, uneven)
    assert (answer.status_code, answer.json()["error"]) == (400, want)
    with pytest.raises(tritonclient.http.InferenceServerException, match=want):
        await asyncio.to_thread(infer, tritonclient.http, running.url, uneven)
    endpoint = grpc_endpoint(running.session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
    with pytest.raises(tritonclient.grpc.InferenceServerException, match=want):
        await asyncio.to_thread(infer, tritonclient.grpc, str(running.session.addresses.grpc), uneven)
    inputs = given(5)
    answer_by_grpc = await asyncio.to_thread(infer, tritonclient.grpc, str(running.session.addresses.grpc), inputs)
    await endpoint.close()
    np.testing.assert_allclose(answer_by_grpc, answer_of(inputs["ids"]), atol=1e-5)


@pytest.mark.parametrize("number", [100, -1, 2**40])
async def test_a_number_outside_of_the_vocabulary_is_refused_and_other_requests_of_its_batch_are_answered(
    running: Stand, number: int
) -> None:
    wrong = given(3)
    wrong["ids"][0, 1] = number
    want = f"input 'ids' has {number}, but the model has rows 0 to 99 only; use the tokenizer of this model"
    answers = await asyncio.gather(in_json(running, given(3)), in_json(running, wrong), in_json(running, given(3)))
    assert [answer.status_code for answer in answers] == [200, 400, 200]
    assert answers[1].json()["error"] == want
    with pytest.raises(tritonclient.http.InferenceServerException, match=want):
        await asyncio.to_thread(infer, tritonclient.http, running.url, wrong)


async def test_a_function_answers_with_a_list_of_samples_for_each_input() -> None:
    lengths = (3, 9, 16)
    async with stand(behind_a_tokenizer()) as running:
        body = {"inputs": [{"name": "input", "datatype": "INT64", "shape": [1, 4], "data": [*lengths, 0]}]}
        answer = await running.client.post("/v2/models/encoder/infer", json=body)
    assert answer.status_code == 200, answer.text
    rows = np.reshape(answer.json()["outputs"][0]["data"], (3, 3))
    want = [answer_of((np.arange(length) + length)[None])[0] for length in lengths]
    np.testing.assert_allclose(rows, want, atol=1e-5)


async def test_a_function_that_answers_inputs_of_different_sizes_fails_its_request() -> None:
    async with stand(behind_a_tokenizer(mask_of=2)) as running:
        body = {"inputs": [{"name": "input", "datatype": "INT64", "shape": [1, 4], "data": [2, 5, 0, 0]}]}
        answer = await running.client.post("/v2/models/encoder/infer", json=body)
    assert answer.status_code == 500
    assert "'tokenize' answered a sample for 'encode' with inputs of sizes 2 and 5" in answer.json()["error"]
