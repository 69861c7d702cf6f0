"""TensorRT engines: one for each batch size, built once for all restarts, and a clear message if there are none."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runtime.execution.test_torch_stages import SMALL, build, standard_input, whole_answer

from partita_api.session.execution import Backend
from partita_runtime.execution.stage_build import Device
from partita_runtime.execution.torch_stage import StageBlocks
from partita_runtime.execution.torch_tensor_rt import CACHE_VARIABLE, Engine, TensorRtEngines, cache_directory

INSTALLED = importlib.util.find_spec("torch_tensorrt") is not None


class Exporting:
    """TensorRtEngines that are exported programs, which torch itself runs, saves and loads."""

    def __init__(self, versions: str = "one") -> None:
        self.versions = versions
        self.compiled: list[int] = []
        self.loaded = 0

    def compile(self, exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> Engine:
        self.compiled.append(inputs[0].shape[0])
        self._exported = exported
        return exported.module()

    def save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        torch.export.save(self._exported, path)

    def load(self, path: Path) -> Engine:
        self.loaded += 1
        return torch.export.load(path).module()


def blocks(seed: int = 0) -> StageBlocks:
    torch.manual_seed(seed)
    return StageBlocks([Tupled(torch.nn.Linear(4, 3)), Tupled(torch.nn.Tanh())]).eval()


class Tupled(torch.nn.Module):
    """A block of one tensor."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, tensor: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.layer(tensor),)


def run(engines: TensorRtEngines, batch: int) -> torch.Tensor:
    with torch.inference_mode():
        (answer,) = engines([torch.arange(4.0 * batch).reshape(batch, 4)])
    return answer


def test_engines_are_built_once_for_each_batch_size_and_answer_like_the_blocks(tmp_path: Path) -> None:
    maker, model = Exporting(), blocks()
    engines = TensorRtEngines(model, maker, tmp_path)
    for batch in (2, 3, 2, 3):
        given = torch.arange(4.0 * batch).reshape(batch, 4)
        torch.testing.assert_close(run(engines, batch), model(given)[0])
    assert maker.compiled == [2, 3]


def test_an_existing_engine_is_loaded(tmp_path: Path) -> None:
    first = run(TensorRtEngines(blocks(), Exporting(), tmp_path), 2)
    again = Exporting()
    torch.testing.assert_close(run(TensorRtEngines(blocks(), again, tmp_path), 2), first)
    assert (again.compiled, again.loaded) == ([], 1)
    assert [path.suffix for path in tmp_path.iterdir()] == [".ep"], "the cache has no other files"


@pytest.mark.parametrize(
    ("seed", "versions", "batch"),
    [
        pytest.param(1, "one", 2, id="other weights"),
        pytest.param(0, "two", 2, id="other libraries or device"),
        pytest.param(0, "one", 4, id="another batch size"),
    ],
)
def test_a_different_engine_is_built(tmp_path: Path, seed: int, versions: str, batch: int) -> None:
    run(TensorRtEngines(blocks(), Exporting(), tmp_path), 2)
    other = Exporting(versions)
    run(TensorRtEngines(blocks(seed), other, tmp_path), batch)
    assert (other.compiled, other.loaded) == ([batch], 0)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv(CACHE_VARIABLE)
    assert cache_directory() == Path.home() / ".cache" / "partita" / "engines"


@pytest.mark.skipif(INSTALLED, reason="torch_tensorrt is installed")
def test_without_torch_tensorrt_the_stage_runs_eagerly_and_names_the_package() -> None:
    built = build(blocks=1, backend=Backend.TENSORRT)
    assert built.backend_used == "Eager"
    (warning,) = built.warnings
    assert warning.startswith("TensorRT cannot build the stage, so it runs eagerly: torch_tensorrt cannot be imported")
    assert "install partita[tensorrt] where the replicas run" in warning
    assert built.executor.run([standard_input(SMALL, 2)])[0].shape == (2, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not INSTALLED or not torch.cuda.is_available(), reason="there is no torch_tensorrt, or no GPU")
def test_tensorrt_answers_like_eager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for _ in range(2):  # built, and then loaded
        built = build(blocks=1, backend=Backend.TENSORRT, device=Device.CUDA, max_batch=4)
        assert (built.backend_used, built.warnings) == ("TensorRT", ())
        for batch in (3, 1, 4):
            pixels = standard_input(SMALL, batch)
            for array, whole in zip(built.executor.run([pixels]), whole_answer(pixels), strict=True):
                np.testing.assert_allclose(array, whole, rtol=0, atol=1e-2)
        assert len(list(tmp_path.glob("*.ep"))) == 4, "of 1 to 4 samples; the engine for two is built at the start"
