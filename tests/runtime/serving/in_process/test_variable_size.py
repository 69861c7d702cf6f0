"""A session with size classes in one process: real models, which answer samples of any width."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tests.runtime.models.onnx_files import exported
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.models import columns
from tests.runtime.serving.plans import Application, application

from partita_api.session.module import TensorSpec
from partita_runtime.execution.executor import Array, BuiltExecutor
from partita_runtime.serving.protocol.inference_client import decode_answer

SIZES = (8, 16, 32)
COLUMNS = {"input": (2, 32), "outputs": ((1, -1),), "entrypoint": "tests.runtime.serving.models:columns"}


def reading(name: str = "reading", **fields: Any) -> Application:
    """A model alone, of columns of any number up to 32."""
    return application(name).model("read", sizes=SIZES, **{**COLUMNS, **fields})


def page(most: int = 8) -> Application:
    """find -> lines -> read: the lines have the widths that the request says."""
    found = application("page").model("find", input=(8,), outputs=((2,),)).function("lines", "lines")
    return replace(found, models=(*found.models, *reading().models)).edge("find", "lines").edge("lines", "read", most)


def unpadded(width: int, line: np.ndarray) -> np.ndarray:
    """What the whole model answers for a line at this width, filled up to the size of its class."""
    size = next(size for size in SIZES if size >= line.shape[-1])
    padded = np.pad(line, ((0, 0), (0, width - line.shape[-1])))
    with torch.no_grad():
        answer: np.ndarray = columns()(torch.from_numpy(padded)[None])[0].numpy()
    return np.pad(answer, ((0, 0), (0, size - width)))


def answer_of(line: np.ndarray, padding: float = 0) -> np.ndarray:
    """What the whole model answers for a line that is padded to its size class."""
    size = next(size for size in SIZES if size >= line.shape[-1])
    padded = np.full((2, size), padding, np.float32)
    padded[:, : line.shape[-1]] = line
    with torch.no_grad():
        answer: np.ndarray = columns()(torch.from_numpy(padded)[None])[0].numpy()
    return answer


def widths(*given: int) -> np.ndarray:
    """The request of a page with lines of these widths."""
    return np.array([[*given, *[0] * (8 - len(given))]], np.float32)


def line(number: int, width: int) -> np.ndarray:
    return np.full((2, width), number + 1, np.float32)


async def infer(running: Stand, tensor: np.ndarray) -> dict[str, np.ndarray]:
    content, headers = infer_body(tensor)
    answer = await running.client.post(f"/v2/models/{running.app.name}/infer", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return decode_answer(answer.headers, answer.content)


async def refusal(running: Stand, tensor: np.ndarray) -> tuple[int, str]:
    content, headers = infer_body(tensor)
    answer = await running.client.post(f"/v2/models/{running.app.name}/infer", content=content, headers=headers)
    return answer.status_code, answer.json()["error"]


@pytest.fixture(params=[pytest.param(None, id="own vGPUs"), pytest.param("shared-0", id="a shared vGPU")])
async def alone(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(replace(reading(), subcluster=request.param)) as running:
        yield running


async def test_samples_of_each_size_are_answered_by_the_whole_model(alone: Stand) -> None:
    noise = np.random.default_rng(1)
    for width in (1, 7, 8, 9, 16, 31, 32):
        samples = noise.standard_normal((2, 2, width), np.float32)
        answer = (await infer(alone, samples))["read"]
        np.testing.assert_allclose(answer, [answer_of(sample) for sample in samples], atol=1e-5)


async def test_clients_see_one_model_of_variable_size(alone: Stand) -> None:
    metadata = (await alone.client.get("/v2/models/reading")).json()
    assert metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 2, -1]}]
    assert metadata["outputs"] == [{"name": "read", "datatype": "FP32", "shape": [-1, 1, -1]}]


@pytest.mark.parametrize(
    "shape", [pytest.param((1, 2, 33), id="too large"), pytest.param((1, 2, 0), id="empty"), (1, 3, 8), (1, 2, 8, 1)]
)
async def test_other_shapes_are_refused_with_the_largest_size(alone: Stand, shape: Sequence[int]) -> None:
    status, message = await refusal(alone, np.zeros(shape, np.float32))
    assert status == 400
    assert "must be FP32 [n, 2, 1 to 32] with n from 1 to 64" in message


async def test_samples_are_padded_with_the_declared_value() -> None:
    async with stand(reading(padding="-1.5")) as running:
        sample = np.ones((1, 2, 5), np.float32)
        np.testing.assert_allclose((await infer(running, sample))["read"][0], answer_of(sample[0], -1.5), atol=1e-5)


async def test_each_class_is_measured(alone: Stand) -> None:
    for width in (3, 4, 20):
        await infer(alone, np.ones((1, 2, width), np.float32))
    signals = (await alone.client.get("/partita/signals", headers=MONITORING)).json()
    assert {stage["module"] for stage in signals["stages"]} == {"read-s8", "read-s16", "read-s32"}
    assert signals["traffic"]["sizeClasses"] == {"read-s8": 2, "read-s32": 1}
    metrics = (await alone.client.get("/partita/metrics", headers=MONITORING)).text
    for size, count in ((8, 2.0), (32, 1.0)):
        labels = f'module="read-s{size}",session="default/reading"'
        assert f"partita_size_class_samples_total{{{labels}}} {count}" in metrics


async def test_samples_of_a_class_without_replicas_are_padded_to_a_larger_one() -> None:
    app = replace(reading(padding="-1.5"), padded={"read-s8": "read-s16"})
    noise = np.random.default_rng(1).standard_normal((2, 2, 32), np.float32)
    async with stand(app) as running:
        for width, size in ((1, 16), (8, 16), (16, 16), (17, 32)):
            samples = noise[:, :, :width]
            padded = [np.pad(s, ((0, 0), (0, size - width)), constant_values=-1.5) for s in samples]
            answer = (await infer(running, samples))["read"]
            np.testing.assert_allclose(answer, [answer_of(sample) for sample in padded], atol=1e-5)
        signals = (await running.client.get("/partita/signals", headers=MONITORING)).json()
        metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    assert {stage["module"] for stage in signals["stages"]} == {"read-s16", "read-s32"}
    labels = 'module="read-s8",session="default/reading"'
    assert f"partita_size_class_samples_total{{{labels}}} 4.0" in metrics, "its samples are counted as its own"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An ONNX file of columns, of any width."""
    path = tmp_path_factory.mktemp("models") / "columns.onnx"
    onnx.save_model(exported(columns(), TensorSpec(shape=(2, 32)), varying={"samples": 2}), str(path))
    return str(path)


@pytest.mark.parametrize("subcluster", [None, "shared-0"])
@pytest.mark.parametrize("step", [1, 4])
async def test_whole_models_of_onnx_files_answer_for_samples_at_their_size(
    step: int, subcluster: str | None, file: str
) -> None:
    app = replace(reading(entrypoint=None, file=file, size_step=step), subcluster=subcluster)
    noise = np.random.default_rng(1)
    async with stand(app) as running:
        for width in (1, 7, 8, 9, 32):
            samples = noise.standard_normal((2, 2, width), np.float32)
            answer = (await infer(running, samples))["read"]
            want = [unpadded(-(-width // step) * step, sample) for sample in samples]
            np.testing.assert_allclose(answer, want, atol=1e-5)


async def test_samples_of_a_batch_have_the_size_of_the_largest(file: str) -> None:
    """Lines of a page arrive together; those of a class are one batch."""
    computed: list[tuple[int, ...]] = []

    def watched(built: BuiltExecutor) -> BuiltExecutor:
        def run(inputs: Sequence[Array]) -> list[Array]:
            computed.append(inputs[0].shape)
            return built.executor.run(inputs)

        return replace(built, executor=SimpleNamespace(run=run))  # type: ignore[arg-type]

    app = page()
    app = replace(app, models=(*app.models[:-1], *reading(entrypoint=None, file=file, size_step=3).models))
    async with stand(app, wrap=watched) as running:
        rows = (await infer(running, widths(11, 9, 14)))["read"]
    assert (3, 2, 15) in computed
    np.testing.assert_allclose(rows, [unpadded(15, line(k, width)) for k, width in enumerate((11, 9, 14))], atol=1e-5)


@pytest.mark.parametrize("fields", [pytest.param({"stages": 2}, id="two stages"), pytest.param({}, id="torch")])
async def test_other_models_answer_for_samples_at_the_size_of_their_class(fields: dict[str, Any], file: str) -> None:
    source = {"entrypoint": None, "file": file} if fields else {}
    async with stand(replace(reading(size_step=1, **source), **fields)) as running:
        sample = np.ones((1, 2, 11), np.float32)
        np.testing.assert_allclose((await infer(running, sample))["read"][0], answer_of(sample[0]), atol=1e-2)


async def test_a_join_gets_the_answers_of_all_classes_in_the_order_of_the_samples() -> None:
    app = page().function("paragraph", "paragraph").edge("read", "paragraph").edge("find", "paragraph")
    given = (30, 5, 12, 8, 9, 1)
    async with stand(app) as running:
        answer = await infer(running, widths(*given))
        np.testing.assert_array_equal(answer["paragraph.widths"], [[32, 8, 16, 8, 16, 8]])
        want = np.concatenate([answer_of(line(k, width)).ravel() for k, width in enumerate(given)])
        np.testing.assert_allclose(answer["paragraph.text"][0], want, atol=1e-5)
        nothing = await infer(running, widths())
        assert nothing["paragraph.widths"].shape == (1, 0)


async def test_a_function_after_one_module_is_called_for_each_answer() -> None:
    async with stand(page().function("width", "width").edge("read", "width")) as running:
        answer = await infer(running, widths(30, 5, 12))
    np.testing.assert_array_equal(answer["width.width"], [32, 8, 16])


async def test_clients_get_the_rows_of_a_last_model_at_the_size_of_the_largest() -> None:
    async with stand(page()) as running:
        rows = (await infer(running, widths(5, 12)))["read"]
        (same,) = (await infer(running, widths(5)))["read"]
    assert rows.shape == (2, 1, 16)
    np.testing.assert_allclose(rows[0, :, :8], answer_of(line(0, 5)), atol=1e-5)
    np.testing.assert_array_equal(rows[0, :, 8:], 0)
    np.testing.assert_allclose(rows[1], answer_of(line(1, 12)), atol=1e-5)
    np.testing.assert_allclose(same, answer_of(line(0, 5)), atol=1e-5)


async def test_a_sample_of_a_function_that_is_too_large_fails_its_request_with_the_largest_size() -> None:
    async with stand(page()) as running:
        status, message = await refusal(running, widths(5, 33))
        assert status == 500
        assert "'lines' answered float32[2, 2, 33] for 'read', which takes float32[n, 2, 1 to 32]" in message
        assert (await infer(running, widths(5)))["read"].shape == (1, 1, 8)


async def test_arrays_of_different_shapes_are_only_for_models() -> None:
    app = application("page").model("find", input=(8,), outputs=((2,),)).function("lines", "lines", to="lines")
    async with stand(app.edge("find", "lines")) as running:
        status, message = await refusal(running, widths(5, 6))
    assert status == 500
    assert "'lines' answered with arrays of different shapes" in message
