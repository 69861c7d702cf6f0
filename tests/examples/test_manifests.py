"""The examples' manifests: valid, consistent with their code, and able to carry their rate."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from partita_api.inferencesession import InferenceSession
from partita_api.manifests import Manifests, parse_manifests

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def read(example: str) -> Manifests:
    found = Manifests()
    for path in sorted((EXAMPLES / example / "manifests").glob("*.yaml")):
        found += parse_manifests(path.read_text(), str(path))
    return found


def built(session: InferenceSession, module: str) -> torch.nn.Module:
    source = next(m.model for m in session.spec.modules if m.name == module)
    assert source is not None
    assert source.entrypoint is not None
    path, _, name = source.entrypoint.partition(":")
    model = getattr(importlib.import_module(path), name)(**source.kwargs)
    assert isinstance(model, torch.nn.Module)
    return model


@pytest.fixture(params=["hello", "traffic", "traffic-emulated"])
def manifests(request: pytest.FixtureRequest) -> Manifests:
    return read(request.param)


@pytest.mark.parametrize(
    "example", ["hello", "hugging-face", "ocr", "semantic_search", "speech", "traffic", "traffic-emulated"]
)
def test_one_session_uses_exactly_the_pools_beside_it(example: str) -> None:
    manifests = read(example)
    (session,) = manifests.sessions

    assert manifests.others == ()
    assert set(session.spec.pools) == {pool.metadata.name for pool in manifests.pools}
    assert session.metadata.namespace is None


def test_checked_examples_can_be_served_beside_each_other() -> None:
    """In one local mode: a pool of the same name would have the accelerators of one of them."""
    pools = [pool.metadata.name for example in ("ocr", "semantic_search", "speech") for pool in read(example).pools]

    assert len(set(pools)) == len(pools) == 3


@torch.no_grad()
def test_models_take_the_declared_inputs_and_functions_the_declared_arguments(manifests: Manifests) -> None:
    (session,) = manifests.sessions

    for module in session.spec.modules:
        if module.input is not None:
            answer = built(session, module.name)(torch.zeros(2, *module.input.shape))
            assert len(answer) == 2
        if module.function is not None:
            path, _, name = module.function.entrypoint.partition(":")
            signature = inspect.signature(getattr(importlib.import_module(path), name))
            signature.bind({}, {}, **module.function.kwargs)


@pytest.mark.parametrize("manifests", ["traffic", "traffic-emulated"], indirect=True)
@torch.no_grad()
def test_crops_have_the_size_that_the_classifiers_take(manifests: Manifests) -> None:
    (session,) = manifests.sessions
    modules = {module.name: module for module in session.spec.modules}
    crop = modules["crop"].function
    assert crop is not None
    path, _, name = crop.entrypoint.partition(":")
    assert modules["detector"].input is not None
    image = np.zeros(modules["detector"].input.shape, dtype=np.float32)
    detections = built(session, "detector")(torch.from_numpy(image)[None])[0].numpy()

    found = getattr(importlib.import_module(path), name)({"input": image}, {"detector": [detections]}, **crop.kwargs)

    for edge in session.spec.edges:
        if edge.source == "crop":
            spec = modules[edge.target].input
            assert spec is not None
            assert found[edge.target].shape[1:] == spec.shape
            assert len(found[edge.target]) <= edge.fan_out.max


@torch.no_grad()
def test_declared_fan_out_is_what_photographs_give() -> None:
    (session,) = read("traffic").sessions
    photos = importlib.import_module("traffic.photos").photographs(40, seed=11)
    crop = importlib.import_module("traffic.functions").crop
    detections = built(session, "detector")(torch.from_numpy(photos)).numpy()

    found = [crop({"input": p}, {"detector": [d]}) for p, d in zip(photos, detections, strict=True)]

    for edge in session.spec.edges:
        if edge.source == "crop":
            mean = np.mean([len(f[edge.target]) for f in found])
            assert abs(mean - float(edge.fan_out.mean)) < 0.35, f"{edge.target}: {mean}"
