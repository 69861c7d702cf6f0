"""Comparing a session's answers with those of the whole models."""

import copy
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from tests.devtools.demo.demo_results import PLAN

from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example, importable, read_example, samples
from partita_devtools.demo.traffic import SessionEndpoint
from partita_devtools.demo.verification import Reference, ask, reference, verify
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.execution.torch_build import build_torch_executor
from partita_runtime.load.reference import WholeModels

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Tensors = dict[str, np.ndarray]

Spoil = Callable[[Tensors], Tensors]


@pytest.fixture(scope="module")
def example() -> Example:
    return read_example(EXAMPLES / "traffic")


@pytest.fixture
async def endpoint(example: Example, request: pytest.FixtureRequest) -> AsyncIterator[SessionEndpoint]:
    """Whole models behind HTTP, whose answers `request.param` may spoil."""
    spoil: Spoil = request.param
    with importable(example):
        models = WholeModels(example.session.spec)

    async def infer(received: web.Request) -> web.Response:
        body = await received.read()
        length = int(received.headers["Inference-Header-Content-Length"])
        header = json.loads(body[:length])["inputs"][0]
        image = np.frombuffer(body[length:], np.float32).reshape(header["shape"])[0]
        answer = spoil(models.answer({header["name"]: image}))
        outputs = [
            {"name": name, "shape": list(t.shape), "datatype": "FP32", "data": t.ravel().tolist()}
            for name, t in answer.items()
        ]
        return web.json_response({"outputs": outputs})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v2/models/traffic/infer", infer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield SessionEndpoint(f"http://127.0.0.1:{runner.addresses[0][1]}", "traffic")
    await runner.cleanup()


@pytest.mark.parametrize(
    ("endpoint", "want_agrees"),
    [
        pytest.param(lambda answer: answer, True, id="as they are"),
        pytest.param(lambda answer: {n: t.astype(np.float16) for n, t in answer.items()}, True, id="in half precision"),
        pytest.param(lambda answer: {n: t[::-1] * 1.1 for n, t in answer.items()}, False, id="spoilt"),
    ],
    indirect=["endpoint"],
)
async def test_photographs_are_compared_over_http(
    endpoint: SessionEndpoint, example: Example, want_agrees: bool
) -> None:
    expected = reference(example, samples(example, 2, seed=4))

    found = verify(example, await ask(endpoint, expected), expected, [detector_cut_before(9)])

    assert found.requests == 2
    assert found.agrees == want_agrees
    assert found.explained == ()


async def test_request_without_an_answer_ends_the_comparison(example: Example, unused_tcp_port: int) -> None:
    expected = Reference(samples(example, 1, seed=0), answers=[{}], seconds=0.0)

    with pytest.raises(DemoError, match="no answer from http://127"):
        await ask(SessionEndpoint(f"http://127.0.0.1:{unused_tcp_port}", "traffic"), expected)


@pytest.fixture(scope="module")
def amplified(example: Example) -> Reference:
    """The reference for a photograph whose person classifier amplifies what a cut of the detector rounds.

    The cut moves the box by 0.02 pixels. The crop changes by 1 % of its magnitude, and the scores by 3.5 %.
    """
    inputs = {name: tensor[1:2] for name, tensor in samples(example, 2, seed=1).items()}
    return reference(example, inputs)


@pytest.fixture(scope="module")
def answer(example: Example, amplified: Reference) -> Tensors:
    """What the replicas of a plan with a cut answer for this photograph, with whole classifiers behind the detector."""
    detector = example.session.spec.modules[0]
    assert detector.model is not None
    assert detector.input is not None
    stages = [
        build_torch_executor(StageBuild(model=detector.model, input=detector.input, blocks=10, first=first, end=end))
        for first, end in ((0, 9), (9, 10))
    ]

    def cut_detector(sample: Sequence[np.ndarray]) -> list[np.ndarray]:
        tensors = [array[None] for array in sample]
        for stage in stages:
            tensors = stage.executor.run(tensors)
        return [tensor[0] for tensor in tensors]

    with importable(example):
        models = WholeModels(example.session.spec)
        request = {name: tensor[0] for name, tensor in amplified.inputs.items()}
        return models.answer(request, {"detector": cut_detector})


def detector_cut_before(block: int) -> PipelinePlanSpec:
    """A plan with two pipelines for the detector: one with a cut, and one without."""
    plan = copy.deepcopy(PLAN)
    before, after = plan["spec"]["modules"][0]["pipelines"][0]["stages"]
    before["blocks"]["end"] = after["blocks"]["first"] = block
    return PipelinePlan.model_validate(plan).spec


def test_rounding_that_a_later_model_amplifies_is_explained(
    example: Example, amplified: Reference, answer: Tensors
) -> None:
    found = verify(example, [answer], amplified, [detector_cut_before(9)])

    assert found.differences == ()
    (explained,) = found.explained
    assert explained.startswith("request 0: person is off by 3.5")
    assert found.largest_error < 1e-3


@pytest.mark.parametrize(
    ("spoil", "cut", "want"),
    [
        pytest.param(lambda a: {**a, "person": a["person"] * 1.03}, 9, "person is off by", id="a module answers wrong"),
        pytest.param(lambda a: {**a, "vehicle": a["vehicle"][::-1]}, 9, "vehicle is off by", id="rows are swapped"),
        pytest.param(lambda a: a, 6, "person is off by", id="another cut than the plan's"),
    ],
)
def test_fault_behind_such_rounding_is_found(
    spoil: Spoil, cut: int, want: str, example: Example, amplified: Reference, answer: Tensors
) -> None:
    found = verify(example, [spoil(answer)], amplified, [detector_cut_before(cut)])

    assert any(want in difference for difference in found.differences), found
    assert found.explained == ()
