"""A trained network of a .onnx file on a real Ray cluster: in two stages, and for lines of any width.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from tests.runtime.models.onnx_files import packaged
from tests.runtime.serving.on_ray.deployment import Deployment
from tests.runtime.serving.plans import application

from partita_runtime.models.files import load_file

pytestmark = pytest.mark.ray

FILE = packaged("PP-OCRv6_rec_small")
WIDTH = 96
READING = replace(
    application("reading").model(
        "recognition", input=(3, 48, WIDTH), outputs=((WIDTH // 8, 18710),), file=str(FILE), beta_micros=50_000
    ),
    stages=2,
    slo_ms=20_000,
)
LINES = replace(
    application("lines").model(
        "recognition",
        input=(3, 48, WIDTH),
        outputs=((-8, 18710),),
        sizes=(WIDTH // 2, WIDTH),
        padding="-1",
        file=str(FILE),
        beta_micros=50_000,
    ),
    slo_ms=20_000,
)


@pytest.fixture(scope="module")
def reading(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(READING)
    yield deployment
    deployment.remove(lambda name: ".reading." in name)


def test_two_stages_read_the_same_characters_as_the_whole_network(reading: Deployment) -> None:
    lines = np.random.default_rng(3).standard_normal((3, 3, 48, WIDTH), np.float32)
    (want,) = load_file(FILE)(torch.from_numpy(lines))

    with triton.InferenceServerClient(reading.url(READING)) as client:
        given = triton.InferInput("input", lines.shape, "FP32")
        given.set_data_from_numpy(lines)
        got = client.infer(READING.name, [given]).as_numpy("recognition")

    np.testing.assert_allclose(got, want.numpy(), atol=2e-2)  # the feature maps in between are in half precision
    np.testing.assert_array_equal(got.argmax(-1), want.numpy().argmax(-1))


@pytest.fixture(scope="module")
def lines(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(LINES)
    yield deployment
    deployment.remove(lambda name: ".lines." in name)


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(WIDTH // 2 - 9, id="smaller than the first class"),
        pytest.param(WIDTH // 2, id="as wide as the first class"),
        pytest.param(WIDTH // 2 + 1, id="wider than the first class"),
        pytest.param(WIDTH, id="as wide as the last class"),
    ],
)
def test_lines_of_any_width_are_read_as_by_the_whole_network(lines: Deployment, width: int) -> None:
    given = np.random.default_rng(width).standard_normal((2, 3, 48, width), np.float32)
    padded = np.full((2, 3, 48, WIDTH if width > WIDTH // 2 else WIDTH // 2), -1, np.float32)
    padded[..., :width] = given
    (want,) = load_file(FILE)(torch.from_numpy(padded))

    with triton.InferenceServerClient(lines.url(LINES)) as client:
        assert client.get_model_metadata(LINES.name)["inputs"][0]["shape"] == [-1, 3, 48, -1]
        tensor = triton.InferInput("input", given.shape, "FP32")
        tensor.set_data_from_numpy(given)
        got = client.infer(LINES.name, [tensor]).as_numpy("recognition")

    np.testing.assert_allclose(got, want.numpy(), atol=1e-4)
