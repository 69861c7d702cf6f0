"""A captured model as a sequence of layers: the cost of each layer, and the tensors that cross a cut after it.

Costs are those of one nominal accelerator, computed from shapes only. So profiling runs on different GPU classes
get the same cut without communication.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, Final, TypeVar

import numpy as np

from partita_api.digests import digest
from partita_api.session.execution import CutDType
from partita_api.session.module import DType, Inputs, TensorSpec, specs_of
from partita_runtime.models.errors import ModelError, ModelErrorReason

NOMINAL_BATCH: Final = 8
"""Batch size of the cost estimates."""
FLOPS_PER_SECOND: Final = 10e12
BYTES_PER_SECOND: Final = 400e9
KERNEL_SECONDS: Final = 3e-6
"""Speeds of the nominal accelerator, a mid-range GPU: arithmetic, memory, and the start of one kernel."""

MAX_CROSSING: Final = 8
"""The most tensors that may cross a cut."""

TRANSPORT: Final[dict[str, DType]] = {
    "float32": DType.FP32,
    "float64": DType.FP32,
    "float16": DType.FP32,
    "bfloat16": DType.FP32,
    "int64": DType.INT64,
    "int32": DType.INT32,
    "int16": DType.INT32,
    "int8": DType.INT32,
    "uint64": DType.UINT64,
    "uint32": DType.UINT32,
    "uint16": DType.UINT16,
    "uint8": DType.UINT8,
    "bool": DType.UINT8,
}
"""The types in which values cross cuts at full precision, by torch's element types; other types cannot cross."""

ANSWERS: Final[dict[str, DType]] = TRANSPORT | {
    "float64": DType.FP64,
    "int16": DType.INT16,
    "int8": DType.INT8,
    "bool": DType.BOOL,
}
"""The types of a model's answers, by torch's element types."""

NUMPY_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "FP32": np.dtype(np.float32),
    "FP16": np.dtype(np.float16),
    "FP64": np.dtype(np.float64),
    "INT64": np.dtype(np.int64),
    "INT32": np.dtype(np.int32),
    "INT16": np.dtype(np.int16),
    "INT8": np.dtype(np.int8),
    "UINT64": np.dtype(np.uint64),
    "UINT32": np.dtype(np.uint32),
    "UINT16": np.dtype(np.uint16),
    "UINT8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
"""numpy's element types of numbers, by their names in the Open Inference Protocol: all but BYTES."""


_V = TypeVar("_V")
"""A value of a graph."""


class Dependence(IntEnum):
    """The inputs that a value of a graph depends on."""

    CONSTANT = 0
    """Weights only."""
    BATCH = 1
    """The batch size too: computed again in every block that needs it, so it crosses no cut."""
    DATA = 2
    """The samples: computed once, and sent across cuts."""


@dataclass(frozen=True)
class SampleTensor:
    """One sample of a tensor with a leading batch dimension."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name of the element type, for example bfloat16."""

    @property
    def spec(self) -> TensorSpec:
        """Its transport form at full precision; a scalar has shape [1]. KeyError if its type cannot be transported."""
        return TensorSpec(shape=self.shape or (1,), dtype=TRANSPORT[self.dtype])

    @property
    def answer(self) -> TensorSpec:
        """As `spec`, but as an output of the model."""
        return TensorSpec(shape=self.shape or (1,), dtype=ANSWERS[self.dtype])

    @property
    def bytes(self) -> int:
        """Bytes of one sample at full precision."""
        return prod(self.shape) * NUMPY_DTYPES[TRANSPORT[self.dtype]].itemsize


@dataclass(frozen=True)
class Work:
    """The work of one or more operations."""

    flops: int = 0
    traffic_bytes: int = 0
    kernels: int = 0
    seconds: float = 0.0
    """Time on the nominal accelerator: the longer of arithmetic and memory traffic, operation by operation."""

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.flops + other.flops,
            self.traffic_bytes + other.traffic_bytes,
            self.kernels + other.kernels,
            self.seconds + other.seconds,
        )

    @staticmethod
    def of_operation(flops: int, traffic_bytes: int) -> "Work":
        """One kernel (the roofline model)."""
        seconds = KERNEL_SECONDS + max(flops / FLOPS_PER_SECOND, traffic_bytes / BYTES_PER_SECOND)
        return Work(flops, traffic_bytes, 1, seconds)


@dataclass(frozen=True)
class Layer:
    """Operations that are never separated: one that computes, and the cheap ones around it."""

    name: str
    work: Work
    crossing: tuple[SampleTensor, ...] | None
    """The tensors that cross a cut after this layer; None if no cut is allowed there."""

    @property
    def cut_bytes(self) -> int | None:
        """Bytes of one sample that cross a cut after this layer; None if no cut is allowed there."""
        return None if self.crossing is None else sum(tensor.bytes for tensor in self.crossing)


def can_cross(tensors: Sequence[SampleTensor | None]) -> bool:
    """Whether a cut may separate `tensors`; None is a value without a leading batch dimension."""
    return 0 < len(tensors) <= MAX_CROSSING and all(
        t is not None and t.dtype in TRANSPORT and all(t.shape) for t in tensors
    )


def output_sample(sample: SampleTensor | None, index: int) -> SampleTensor:
    """Return `sample`; raises ModelError if a client cannot receive the output."""
    if sample is None or not can_cross([sample]):
        raise ModelError(
            ModelErrorReason.BAD_OUTPUT,
            f"output {index} of the model has no leading batch dimension, or an element type that cannot be "
            "transported; wrap the model to return only tensors of float, integer or bool with a batch dimension",
        )
    return sample


def live_values(
    inputs: tuple[_V, ...], made: Sequence[tuple[_V, ...]], last_use: Mapping[_V, int]
) -> tuple[tuple[_V, ...], ...]:
    """At index i, the values that exist before operation i and are used by it or later, in order of creation.

    made: what each operation makes. last_use: the last operation that uses a value; values without one are not used.
    """
    live = [inputs]
    for i, values in enumerate(made, start=1):
        live.append(tuple(value for value in (*live[-1], *values) if last_use.get(value, -1) >= i))
    return tuple(live)


def cheapest_end(computing: int, following: int, crossing: Callable[[int], Sequence[SampleTensor] | None]) -> int:
    """The end of a layer between two computing operations: where the fewest bytes cross; the last among equals.

    crossing: what crosses a cut before an operation; None if no cut is allowed there.
    """

    def cost(end: int) -> tuple[bool, int]:
        crossed = crossing(end)
        return crossed is None, sum(tensor.bytes for tensor in crossed or ())

    return min(range(following, computing, -1), key=cost)


def at_cut(spec: TensorSpec, cut_dtype: CutDType) -> TensorSpec:
    """`spec` as it crosses a cut: floats in `cut_dtype`, other types unchanged."""
    return spec.model_copy(update={"dtype": DType(cut_dtype)}) if spec.dtype is DType.FP32 else spec


def partition_digest(structure: Sequence[object], inputs: Inputs, ends: Sequence[int]) -> str:
    """Digest of a cut: of the graph's operations and shapes (not its weights), the inputs, and the blocks' ends."""
    specs = [spec.model_dump(mode="json") for spec in specs_of(inputs)]
    return digest(
        {
            "structure": list(structure),
            "input": specs[0] if isinstance(inputs, TensorSpec) else specs,
            "ends": [int(e) for e in ends],
        }
    )
