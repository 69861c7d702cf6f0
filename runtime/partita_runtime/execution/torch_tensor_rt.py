"""Execution with TensorRT through torch_tensorrt: one engine for each batch size, cached on disk by content."""

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
"""Environment variable: the directory of the engines. Only this process's user may have write access."""
_SUFFIX: Final = ".ep"

Engine = Callable[..., Any]
"""Computes batches of one size."""


class EngineMaker(Protocol):
    """Makes engines, and saves and loads them as files."""

    versions: str
    """Everything besides the model that an engine depends on: libraries and the device."""

    def compile(self, exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> Engine:
        """An engine for batches like `inputs`."""

    def save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Write an engine to a file."""

    def load(self, path: Path) -> Engine:
        """Read an engine that `save` wrote."""


def tensor_rt(blocks: StageBlocks, entry: Boundary) -> Compute:
    """Build a TensorRT engine for a batch of two now, and for other sizes at their first run.

    Raises CannotBuildError, for example without torch_tensorrt or without a GPU.
    """
    try:
        maker = TorchTensorRt()
        if entry.device.type != "cuda":
            raise CannotBuildError("there is no CUDA device")
        engines = TensorRtEngines(blocks, maker, cache_directory())
        with torch.inference_mode():
            engines(entry.zeros(2))
    except CannotBuildError:
        raise
    except Exception as error:
        raise CannotBuildError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return engines


def cache_directory() -> Path:
    """The directory of the engines: `PARTITA_ENGINE_CACHE`, or the user's cache."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "partita" / "engines")


class TensorRtEngines:
    """All engines of a stage; those in `directory` are not built again."""

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
            self._save(engine, path, example)
            return engine

    def _save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Write the file under another name first: other replicas on the node may read it at any time."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._directory) as temporary:
            written = Path(temporary) / path.name
            self._maker.save(engine, written, inputs)
            written.replace(path)


def content_key(exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor], versions: str) -> str:
    """Digest of an engine's content: operations, weights, shapes and element types of the batch, libraries, device."""
    key = hashlib.sha256(versions.encode())
    key.update(str(exported.graph).encode())
    key.update(repr([(tuple(tensor.shape), tensor.dtype) for tensor in inputs]).encode())
    for name, tensor in sorted({**exported.state_dict, **exported.constants}.items()):
        key.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode())
        key.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return key.hexdigest()


class TorchTensorRt:
    """Makes engines with torch_tensorrt. Raises CannotBuildError if it is missing."""

    def __init__(self) -> None:
        try:
            self._library: Any = importlib.import_module("torch_tensorrt")
        except ImportError as error:
            raise CannotBuildError(
                f"torch_tensorrt cannot be imported ({error}); install partita[tensorrt] where the replicas run "
                "(docs/concepts/profiling.md), or choose execution.backend Eager, Inductor or CudaGraphs"
            ) from error
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
        self.versions = f"{torch.__version__} {self._library.__version__} {device}"

    def compile(self, exported: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> Engine:
        """An engine in the model's precision for batches like `inputs`."""
        engine: Engine = self._library.dynamo.compile(exported, arg_inputs=[*inputs], min_block_size=1)
        return engine

    def save(self, engine: Engine, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Write an engine to a file."""
        self._library.save(engine, str(path), arg_inputs=[*inputs])

    def load(self, path: Path) -> Engine:
        """Read an engine that `save` wrote."""
        engine: Engine = self._library.load(str(path)).module()
        return engine
