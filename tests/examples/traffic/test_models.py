"""The example's networks: what shapes they answer with, and what Partita needs of them."""

import hashlib
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from traffic.labels import DETECTOR_LABELS, PERSON_LABELS, VEHICLE_LABELS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

MODELS = [
    pytest.param("detector", 224, id="detector"),
    pytest.param("vehicle_classifier", 128, id="vehicle"),
    pytest.param("person_classifier", 128, id="person"),
]
QUERIES = 48
WANT_SHAPES = {
    "detector": (QUERIES, 4 + len(DETECTOR_LABELS) + 1),
    "vehicle_classifier": (len(VEHICLE_LABELS),),
    "person_classifier": (len(PERSON_LABELS),),
}


def built(name: str, **kwargs: int) -> nn.Module:
    network: nn.Module = getattr(importlib.import_module("traffic.models"), name)(**kwargs)
    return network


def photographs(count: int, seed: int = 0) -> np.ndarray:
    views: np.ndarray = importlib.import_module("traffic.photos").photographs(count, seed)
    return views


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    return torch.from_numpy(photographs(4))


def digest(model: nn.Module) -> str:
    values = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values.update(name.encode() + tensor.numpy().tobytes())
    return values.hexdigest()


@torch.no_grad()
@pytest.mark.parametrize(("build", "side"), MODELS)
def test_answer_has_one_row_a_sample(build: str, side: int, photos: torch.Tensor) -> None:
    answer = built(build)(photos[:, :, :side, :side])

    assert isinstance(answer, torch.Tensor)
    assert tuple(answer.shape) == (4, *WANT_SHAPES[build])
    assert torch.isfinite(answer).all()


@torch.no_grad()
@pytest.mark.parametrize(("build", "side"), MODELS)
def test_different_photographs_get_different_answers(build: str, side: int, photos: torch.Tensor) -> None:
    answer = built(build)(photos[:, :, :side, :side])

    spread = answer.std(dim=0).mean() / answer.abs().mean()
    assert spread > 0.05, "fp16 rounding between stages would hide what the model says"


@torch.no_grad()
@pytest.mark.parametrize(("build", "side"), MODELS)
def test_no_activation_is_near_the_limit_of_fp16(build: str, side: int, photos: torch.Tensor) -> None:
    model = built(build)
    largest = [0.0]

    def watch(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            largest.append(output.abs().max().item())

    for module in model.modules():
        module.register_forward_hook(watch)
    model(photos[:, :, :side, :side])

    assert 0.1 < max(largest) < 0.1 * torch.finfo(torch.float16).max


@torch.no_grad()
@pytest.mark.parametrize(("build", "side"), MODELS)
def test_model_exports_with_a_dynamic_batch(build: str, side: int, photos: torch.Tensor) -> None:
    model = built(build)
    images = photos[:, :, :side, :side]

    exported = torch.export.export(model, (images[:2],), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},))

    torch.testing.assert_close(exported.module()(images[:3]), model(images[:3]))


def test_every_process_builds_the_same_weights_and_leaves_the_random_state_alone() -> None:
    program = (
        "import hashlib, torch; from traffic.models import detector; torch.manual_seed(99); before = torch.rand(1);"
        "torch.manual_seed(99); model = detector(); assert torch.equal(before, torch.rand(1));"
        "values = hashlib.sha256();"
        "[values.update(n.encode() + t.numpy().tobytes()) for n, t in sorted(model.state_dict().items())];"
        "print(values.hexdigest())"
    )

    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": str(EXAMPLES), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )

    assert other.stdout.strip() == digest(built("detector"))
    assert digest(built("detector", seed=5)) != digest(built("detector"))


def test_photographs_are_normalised_reproducible_and_all_different() -> None:
    views = photographs(12, seed=3)

    assert views.shape == (12, 3, 224, 224)
    assert views.dtype == np.float32
    assert abs(views.mean()) < 1.5
    assert 0.5 < views.std() < 2
    np.testing.assert_array_equal(views, photographs(12, seed=3))
    assert len({view.tobytes() for view in views}) == 12
    assert not np.array_equal(views, photographs(12, seed=4))
