"""An example: a folder with manifests, and the Python packages that they name beside it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.manifests import ManifestError, Manifests, parse_manifests
from partita_api.session.module import DType, TensorSpec
from partita_devtools.demo.errors import DemoError
from partita_devtools.ray_cluster.commands import RayClassNode
from partita_devtools.ray_cluster.third_party_imports import third_party_imports
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.protocol.interface import Interface

DEMONSTRATION: Final = "demonstration"
"""Module of an example's package that makes its requests: `requests(count, seed)` returns tensors by input name."""


@dataclass(frozen=True)
class Example:
    """The manifests of an example: one session, and the pools that it uses."""

    directory: Path
    session: InferenceSession
    pools: tuple[GPUPool, ...]

    @property
    def python_path(self) -> Path:
        """Directory for the PYTHONPATH of processes that run the example's models."""
        return self.directory.parent.absolute()

    @property
    def is_emulated(self) -> bool:
        """Whether executions are emulated, so that answers have no meaning."""
        return all(pool.spec.emulation is not None and pool.spec.emulation.curves for pool in self.pools)

    def at_rate(self, requests_per_second: int) -> "Example":
        """The same example with a session that declares another rate."""
        return self._with(rate=self.session.spec.rate.model_copy(update={"requests_per_second": requests_per_second}))

    def within_slo(self, millis: int) -> "Example":
        """The same example with a session that declares another SLO, in milliseconds."""
        return self._with(slo=self.session.spec.slo.model_copy(update={"latency_ms": millis}))

    def _with(self, **fields: Any) -> "Example":
        spec = self.session.spec.model_copy(update=fields)
        return replace(self, session=self.session.model_copy(update={"spec": spec}))

    @property
    def ray_nodes(self) -> tuple[RayClassNode, ...]:
        """A Ray node for each pool, whose workers find imported what the example's modules import."""
        packages = third_party_imports(self.directory)
        return tuple(RayClassNode.of_pool(pool, packages) for pool in self.pools)


def read_example(directory: Path, namespace: str = "default") -> Example:
    """The example in `directory`; `namespace` is for a session without a namespace. Raises DemoError."""
    paths = sorted((directory / "manifests").glob("*.yaml"))
    if not paths:
        raise DemoError(f"there are no manifests/*.yaml in {directory}; give an example such as examples/ocr")
    found = Manifests()
    try:
        for path in paths:
            found += parse_manifests(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DemoError(f"{path} cannot be read: {error}") from error
    except ManifestError as error:
        raise DemoError(str(error)) from error
    if len(found.sessions) != 1 or not found.pools:
        raise DemoError(
            f"{directory} has {len(found.sessions)} sessions and {len(found.pools)} pools; "
            "a demonstration needs exactly one session, and pools"
        )
    (session,) = found.sessions
    placed = session.metadata.model_copy(update={"namespace": session.metadata.namespace or namespace})
    return Example(directory, session.model_copy(update={"metadata": placed}), found.pools)


@contextmanager
def importable(example: Example) -> Iterator[None]:
    """Let this process import the example's packages during a `with` block."""
    path = str(example.python_path)
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)


def demonstration(example: Example) -> Any:
    """The module `demonstration` of the package of the session's first model; None if it has none.

    Raises DemoError if it cannot be imported.
    """
    model = next(module.model for module in example.session.spec.modules if module.model is not None)
    if model.entrypoint is None or example.is_emulated:
        return None
    package = model.entrypoint.partition(":")[0].partition(".")[0]
    if not (example.python_path / package / f"{DEMONSTRATION}.py").is_file():
        return None
    try:
        with importable(example):
            return importlib.import_module(f"{package}.{DEMONSTRATION}")
    except ImportError as error:
        raise DemoError(f"{package}/{DEMONSTRATION}.py cannot be imported: {error}; install what it imports") from error


def samples(example: Example, count: int, seed: int) -> dict[str, NDArray[Any]]:
    """`count` samples for the session's inputs, by input name, each `[count, ...]`. Raises DemoError.

    They are those of the example's module `demonstration`, or noise.
    """
    made = demonstration(example)
    if made is not None:
        requests: dict[str, NDArray[Any]] = made.requests(count, seed)
        return requests
    inputs = Interface(example.session.metadata.name, example.session.spec, {}).inputs
    return {name: _noise(spec, count, seed) for name, spec in inputs.items()}


def _noise(spec: TensorSpec, count: int, seed: int) -> NDArray[Any]:
    if spec.dtype is DType.BYTES:
        raise DemoError(
            "the demonstration cannot make BYTES for an input; write a function requests(count, seed) in "
            f"{DEMONSTRATION}.py beside the session's models, which returns tensors by input name"
        )
    generator = np.random.default_rng(seed)
    dtype = NUMPY_DTYPES[spec.dtype]
    if dtype.kind == "f":
        return generator.standard_normal((count, *spec.shape)).astype(dtype)
    return generator.integers(0, 256, (count, *spec.shape)).astype(dtype)
