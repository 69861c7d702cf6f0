"""Execution by TensorRT, through torch_tensorrt: one engine for each batch size, kept on disk by what it is made of."""

import hashlib
import importlib
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from partita_runtime.execution.torch_stage import Boundary, CannotBuildError, Compute, StageBlocks

CACHE_VARIABLE: Final = "PARTITA_ENGINE_CACHE"
"""Environment variable: the directory of the engines. Only this process's user may be able to write there."""
_SUFFIX: Final = ".ep"

Engine = Callable[..., Any]
"""What answers a batch of one size."""


class EngineMaker(Protocol):
    """Makes engines, and keeps them as files."""

    versions: str
    """Everything outside of the model that an engine depends on: libraries, and the device."""

    def compile(self, exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> Engine:
        """An engine for batches like `inputs`."""

    def save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Write an engine to a file."""

    def load(self, path: Path) -> Engine:
        """Read an engine that `save` has written."""


def tensor_rt(blocks: StageBlocks, entry: Boundary) -> Compute:
    """The blocks as a TensorRT engine for a batch of two now, and for other sizes when they first come.

    Raises CannotBuildError, as where there is no torch_tensorrt, or no GPU.
    """
    try:
        maker = TorchTensorRt()
        if entry.device.type != "cuda":
            raise CannotBuildError("there is no CUDA device")
        engines = Engines(blocks, maker, cache_directory())
        with torch.inference_mode():
            engines(entry.zeros(2))
    except CannotBuildError:
        raise
    except Exception as error:
        raise CannotBuildError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return engines


def cache_directory() -> Path:
    """Where engines are kept: `PARTITA_ENGINE_CACHE`, else in the user's cache."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "partita" / "engines")


class Engines:
    """All engines of a stage. What is in `directory` is not built again."""

    def __init__(self, blocks: StageBlocks, maker: EngineMaker, directory: Path) -> None:
        self._blocks = blocks
        self._maker = maker
        self._directory = directory
        self._engines: dict[int, Engine] = {}

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        batch = tensors[0].shape[0]
        engine = self._engines.get(batch)
        if engine is None:
            engine = self._engines[batch] = self._engine([tensor.clone() for tensor in tensors])
        answer = engine(*tensors)
        return (answer,) if isinstance(answer, torch.Tensor) else tuple(answer)

    def _engine(self, inputs: Sequence[torch.Tensor]) -> Engine:
        with torch.inference_mode(False), torch.no_grad():
            example = [tensor.clone() for tensor in inputs]
            exported = torch.export.export(self._blocks, tuple(example))
            path = self._directory / (content_key(exported, example, self._maker.versions) + _SUFFIX)
            if path.exists():
                return self._maker.load(path)
            engine = self._maker.compile(exported, example)
            self._keep(engine, path, example)
            return engine

    def _keep(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Other replicas on the node may look at the same moment, so a file appears when it is whole."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._directory) as aside:
            written = Path(aside) / path.name
            self._maker.save(engine, written, inputs)
            written.replace(path)


def content_key(exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor], versions: str) -> str:
    """What an engine is made of: operations, weights, shapes and element types of the batch, libraries and device."""
    key = hashlib.sha256(versions.encode())
    key.update(str(exported.graph).encode())
    key.update(repr([(tuple(tensor.shape), tensor.dtype) for tensor in inputs]).encode())
    for name, tensor in sorted({**exported.state_dict, **exported.constants}.items()):
        key.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode())
        key.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return key.hexdigest()


class TorchTensorRt:
    """The real one. Raises CannotBuildError where torch_tensorrt is missing."""

    def __init__(self) -> None:
        try:
            self._library: Any = importlib.import_module("torch_tensorrt")
        except ImportError as error:
            raise CannotBuildError(
                f"torch_tensorrt cannot be imported ({error}); install partita[tensorrt] where the replicas run "
                "(docs/profiling.md), or choose execution.backend Eager, Inductor or CudaGraphs"
            ) from error
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
        self.versions = f"{torch.__version__} {self._library.__version__} {device}"

    def compile(self, exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> Engine:
        """As EngineMaker says; in the model's own precision."""
        engine: Engine = self._library.dynamo.compile(exported, arg_inputs=[*inputs], min_block_size=1)
        return engine

    def save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """As EngineMaker says."""
        self._library.save(engine, str(path), arg_inputs=[*inputs])

    def load(self, path: Path) -> Engine:
        """As EngineMaker says."""
        engine: Engine = self._library.load(str(path)).module()
        return engine
