"""Weights that the models of a process have in common are in memory once, and the answers stay the same."""

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runtime.models.onnx_files import packaged
from tests.runtime.models.sample_models import residuals

from partita_api.session.execution import Backend
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor, warmed
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.shared_weights import SharedWeights
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.models.standard_inputs import standard_input

MODELS = "tests.runtime.models.sample_models"
WIDE = ModelSource(entrypoint=f"{MODELS}:residuals", kwargs={"width": 97, "depth": 4})
SIZES = (16, 24, 40)


def of_size(size: int, model: ModelSource = WIDE, **fields: object) -> StageBuild:
    taken = TensorSpec(shape=(3, size, size))
    return StageBuild.model_validate({"model": model, "input": taken, "blocks": 4, "max_batch": 2, **fields})


def weights_in_memory() -> int:
    """Bytes of the convolutions of `WIDE` that are in memory."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.shape == (97, 97, 3, 3)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


ONE = 4 * 97 * 97 * 9 * 4
"""Their bytes in one model."""


def answers(built: BuiltExecutor, size: int) -> np.ndarray:
    return np.concatenate(built.executor.run([standard_input(TensorSpec(shape=(3, size, size)), 2)]), axis=1)


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.INDUCTOR])
def test_size_classes_have_their_weights_once(backend: Backend) -> None:
    weights = SharedWeights()
    before = weights_in_memory()
    built = [warmed(of_size(size, backend=backend), weights) for size in SIZES]
    assert weights_in_memory() - before == ONE
    for size, one in zip(SIZES, built, strict=True):
        np.testing.assert_allclose(answers(one, size), answers(build_executor(of_size(size)), size), rtol=0, atol=1e-5)


def test_without_it_each_class_has_its_own() -> None:
    before = weights_in_memory()
    built = [build_executor(of_size(size)) for size in SIZES]
    assert weights_in_memory() - before == len(built) * ONE


def test_a_stage_has_the_weights_of_its_blocks_only() -> None:
    weights = SharedWeights()
    before = weights_in_memory()
    stages = [build_executor(of_size(16, first=first, end=first + 1), weights) for first in (2, 3)]
    alone = weights_in_memory() - before
    whole = build_executor(of_size(24), weights)
    assert 0 < alone < ONE == weights_in_memory() - before
    assert all(stage.executor.memory_bytes < whole.executor.memory_bytes for stage in stages)


def test_weights_go_with_the_last_model_that_has_them() -> None:
    weights = SharedWeights()
    before = weights_in_memory()
    built = [build_executor(of_size(size), weights) for size in SIZES]
    want = answers(built[2], 40)
    for _ in SIZES[1:]:
        del built[0]
        assert weights_in_memory() - before == ONE
    np.testing.assert_array_equal(answers(built[0], 40), want)
    built.append(build_executor(of_size(16), weights))
    assert weights_in_memory() - before == ONE, "the last holder's are found"
    built.clear()
    assert weights_in_memory() == before


def test_only_equal_weights_are_shared() -> None:
    """A deeper model with the same seed has one more convolution."""
    weights = SharedWeights()
    before = weights_in_memory()
    one = build_executor(of_size(16), weights)
    other = build_executor(of_size(16, WIDE.model_copy(update={"kwargs": {"width": 97, "depth": 5}})), weights)
    assert weights_in_memory() - before == ONE // 4 * 5
    assert not np.array_equal(answers(one, 16), answers(other, 16))


def test_torchscript_has_its_weights_once(tmp_path: Path) -> None:
    file = tmp_path / "wide.pt"
    torch.jit.trace(residuals(97, 4), torch.zeros(1, 3, 16, 16), strict=False).save(str(file))
    weights = SharedWeights()
    built = [build_executor(of_size(size, ModelSource(file=str(file))), weights) for size in SIZES]
    gc.collect()
    parameters = [dict(one.executor._blocks.named_parameters()) for one in built]  # type: ignore[attr-defined]
    for name, parameter in parameters[0].items():
        assert len({found[name].data_ptr() for found in parameters}) == 1, name
        assert parameter.numel()
    want = answers(build_executor(of_size(40, ModelSource(file=str(file)))), 40)
    np.testing.assert_allclose(answers(built[2], 40), want, rtol=0, atol=1e-5)


def test_onnx_files_have_their_weights_once() -> None:
    model, weights = ModelSource(file=str(packaged("PP-OCRv6_rec_small"))), SharedWeights()
    lines = [TensorSpec(shape=(3, 48, width)) for width in (96, 160)]
    built = [build_executor(StageBuild(model=model, input=line, blocks=2, max_batch=2), weights) for line in lines]
    of_each = [one.executor._blocks.buffers() for one in built]  # type: ignore[attr-defined]
    storages = [{buffer.data_ptr() for buffer in buffers} for buffers in of_each]
    assert len(storages[0] & storages[1]) >= 0.9 * len(storages[0])
    alone = build_executor(StageBuild(model=model, input=lines[1], blocks=2, max_batch=2))
    given = [standard_input(lines[1], 2)]
    np.testing.assert_allclose(built[1].executor.run(given)[0], alone.executor.run(given)[0], rtol=0, atol=1e-5)


def test_buffers_that_a_model_writes_to_stay_its_own() -> None:
    source = ModelSource(entrypoint=f"{MODELS}:counting")
    weights = SharedWeights()
    one, other = (build_executor(of_size(16, source, blocks=1), weights) for _ in range(2))
    counts = [answers(built, 16).max() for built in (one, one, other)]
    assert counts[0] != counts[1], "it counts its batches"
    assert counts[2] == counts[0]
