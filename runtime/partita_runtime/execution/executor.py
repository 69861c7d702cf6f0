"""The interface between a stage replica and the code that computes its stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partita_api.session.module import TensorSpec
from partita_runtime.models.layers import NUMPY_DTYPES as NUMPY_DTYPES

Array = NDArray[Any]
"""One tensor of a batch; its leading dimension is the batch."""


class StageExecutor(Protocol):
    """Computes the blocks of one stage. Not thread-safe: one batch at a time."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of weights on the executor's device."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The stage's outputs for one batch.

        inputs: the tensors that cross the stage's first cut (for the first stage: the one input), each of shape
        [batch, *spec.shape] with the element type of its spec; read-only arrays are fine. Returns the
        tensors that cross its last cut, or the model's outputs, in the same form. Raises ValueError for tensors that
        do not match the stage's input specs, or a batch larger than it was built for.
        """

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Run once with zeros at every batch size: later runs then neither allocate nor compile."""


@dataclass(frozen=True)
class BuiltExecutor:
    """A stage executor, with the backend and device that are in use."""

    executor: StageExecutor
    backend_used: str
    """Eager, Inductor, CudaGraphs, TensorRT or Emulated."""
    device_used: str
    """cpu, cuda or none."""
    inputs: tuple[TensorSpec, ...]
    """The inputs of `run`."""
    outputs: tuple[TensorSpec, ...]
    """The outputs of `run`."""
    partition: str | None = None
    """Digest of the model's cut into blocks; None if no model was loaded."""
    warnings: tuple[str, ...] = ()
    """One sentence for each fallback in use."""


def check_batch(inputs: Sequence[Array], specs: Sequence[TensorSpec], max_batch: int) -> int:
    """The batch size of `inputs`. Raises ValueError unless they match `specs` and 1 <= batch <= max_batch."""
    if len(inputs) != len(specs):
        raise ValueError(f"the stage takes {len(specs)} tensors, not {len(inputs)}")
    batch = inputs[0].shape[0] if inputs[0].ndim else 0
    if not 1 <= batch <= max_batch:
        raise ValueError(f"a batch of {batch} is outside 1 to {max_batch}")
    for i, (array, spec) in enumerate(zip(inputs, specs, strict=True)):
        want = (batch, *spec.shape)
        if array.shape != want or array.dtype != NUMPY_DTYPES[spec.dtype]:
            raise ValueError(
                f"tensor {i} is {array.dtype}{list(array.shape)}, not {NUMPY_DTYPES[spec.dtype]}{list(want)}"
            )
    return batch


def zeros(specs: Sequence[TensorSpec], batch: int) -> list[Array]:
    """Arrays of zeros of shape [batch, *spec.shape]."""
    return [np.zeros((batch, *spec.shape), NUMPY_DTYPES[spec.dtype]) for spec in specs]
