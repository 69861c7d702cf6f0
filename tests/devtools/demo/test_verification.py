"""Comparing a session's answers with those of the whole models."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example, importable, read_example, samples
from partita_devtools.demo.traffic import SessionEndpoint
from partita_devtools.demo.verification import Reference, compare, reference, verify
from partita_runtime.load.reference import WholeModels

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Tensors = dict[str, np.ndarray]

WANT: Tensors = {"vehicle": np.array([[1.0, -4.0], [2.0, 0.5]], np.float32), "person": np.array([[3.0]], np.float32)}


@pytest.mark.parametrize(
    ("given", "want_difference"),
    [
        pytest.param(WANT, None, id="the same"),
        pytest.param({**WANT, "vehicle.index": np.array([0, 0])}, None, id="the same, with row numbers"),
        pytest.param({**WANT, "person": np.array([[3.02]], np.float32)}, None, id="rounded"),
        pytest.param({**WANT, "person": np.array([[3.5]], np.float32)}, "person is off by 16.67%", id="wrong number"),
        pytest.param({**WANT, "person": np.array([[np.nan]], np.float32)}, "person is off by nan", id="no number"),
        pytest.param({**WANT, "vehicle": WANT["vehicle"][:1]}, "vehicle is [1, 2], but", id="row missing"),
        pytest.param({"vehicle": WANT["vehicle"]}, "person is nothing, but", id="tensor missing"),
        pytest.param({**WANT, "extra": np.ones((2, 1))}, "extra has 2 rows, but", id="tensor too many"),
    ],
)
def test_answers_agree_within_what_rounding_explains(given: Tensors, want_difference: str | None) -> None:
    found = compare([WANT, given], [WANT, WANT], tolerance=0.01)

    assert found.agrees == (want_difference is None)
    if want_difference is not None:
        assert len(found.differences) == 1
        assert found.differences[0].startswith(f"request 1: {want_difference}")


def test_comparison_counts_what_it_compared() -> None:
    found = compare([WANT], [WANT], tolerance=0.01)

    assert (found.requests, found.values, found.largest_error) == (1, 5, 0.0)


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

    found = await verify(endpoint, example, expected)

    assert found.requests == 2
    assert found.agrees == want_agrees


async def test_request_without_an_answer_ends_the_comparison(example: Example, unused_tcp_port: int) -> None:
    expected = Reference(samples(example, 1, seed=0), answers=[{}], seconds=0.0)

    with pytest.raises(DemoError, match="no answer from http://127"):
        await verify(SessionEndpoint(f"http://127.0.0.1:{unused_tcp_port}", "traffic"), example, expected)
