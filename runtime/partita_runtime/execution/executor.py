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
        do not match the stage's input specs, or a batch larger than it was built for. If it takes samples of any size
        up to its specs (`BuiltExecutor.any_size`), outputs of smaller samples are filled up with zeros.
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
    any_size: bool = False
    """Whether `run` takes samples that are smaller than `inputs`, and computes them at their size."""
    partition: str | None = None
    """Digest of the model's cut into blocks; None if no model was loaded."""
    warnings: tuple[str, ...] = ()
    """One sentence for each fallback in use."""


def check_batch(inputs: Sequence[Array], specs: Sequence[TensorSpec], max_batch: int, *, any_size: bool = False) -> int:
    """The batch size of `inputs`. Raises ValueError unless they match `specs` and 1 <= batch <= max_batch.

    With `any_size`, their samples may be smaller than `specs`.
    """
    if len(inputs) != len(specs):
        raise ValueError(f"the stage takes {len(specs)} tensors, not {len(inputs)}")
    batch = inputs[0].shape[0] if inputs[0].ndim else 0
    if not 1 <= batch <= max_batch:
        raise ValueError(f"a batch of {batch} is outside 1 to {max_batch}")
    for i, (array, spec) in enumerate(zip(inputs, specs, strict=True)):
        want = (batch, *spec.shape)
        fits = is_within(array.shape, want) if any_size else array.shape == want
        if not fits or array.dtype != NUMPY_DTYPES[spec.dtype]:
            raise ValueError(
                f"tensor {i} is {array.dtype}{list(array.shape)}, not {NUMPY_DTYPES[spec.dtype]}{list(want)}"
            )
    return batch


def is_within(shape: Sequence[int], largest: Sequence[int]) -> bool:
    """Whether a batch has the leading dimension of the largest one, and others that are at most its others.

    >>> is_within((2, 3, 48, 100), (2, 3, 48, 320)), is_within((2, 3, 48, 321), (2, 3, 48, 320))
    (True, False)
    """
    return (
        len(shape) == len(largest)
        and shape[:1] == largest[:1]
        and all(0 < size <= most for size, most in zip(shape[1:], largest[1:], strict=True))
    )


def filled_up(array: Array, shape: Sequence[int]) -> Array:
    """The array itself if it has this shape; else a copy with zeros at the ends of its dimensions."""
    if array.shape == tuple(shape):
        return array
    larger = np.zeros(shape, array.dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger


def zeros(specs: Sequence[TensorSpec], batch: int) -> list[Array]:
    """Arrays of zeros of shape [batch, *spec.shape]."""
    return [np.zeros((batch, *spec.shape), NUMPY_DTYPES[spec.dtype]) for spec in specs]
