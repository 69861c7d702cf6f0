"""Samples of variable size: the shapes that an input takes, the size class of a sample, and its padding. Pure."""

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from partita_api.session.module import Module, TensorSpec, specs_of
from partita_api.session.size_classes import served_classes
from partita_api.session.sizes import class_name
from partita_runtime.execution.executor import Array


def takes(spec: TensorSpec, shape: Sequence[int]) -> bool:
    """Whether a sample of an input may have this shape."""
    if spec.variable_dimension is None:
        return tuple(shape) == spec.shape
    return len(shape) == len(spec.shape) and all(
        1 <= given <= size if dimension == spec.variable_dimension else given == size
        for dimension, (given, size) in enumerate(zip(shape, spec.shape, strict=True))
    )


def described(spec: TensorSpec) -> tuple[int, ...]:
    """The dimensions of a sample in metadata: -1 for the variable one."""
    return tuple(-1 if number == spec.variable_dimension else size for number, size in enumerate(spec.shape))


def dimensions(spec: TensorSpec) -> list[str]:
    """The dimensions of a sample in a message to people: of the variable one, the sizes that it may have."""
    return [
        f"1 to {size}" if dimension == spec.variable_dimension else str(size)
        for dimension, size in enumerate(spec.shape)
    ]


@dataclass(frozen=True)
class SizedInputs:
    """The inputs of a module with size classes. Those that vary have one size in a sample."""

    specs: tuple[TensorSpec, ...]
    classes: tuple[tuple[int, str], ...]
    """Sizes and names of the size classes, the smallest first."""
    served: tuple[tuple[int, str], ...]
    """Those of them that have replicas; always the largest one."""
    step: int | None = None
    """Models compute every multiple of this size, too; None if they need not."""

    @classmethod
    def of(cls, module: Module, served: Container[str]) -> Self:
        """The inputs of a module with `sizes`; the modules of a plan that are `served` have replicas."""
        sizes = {class_name(module.name, each.size): each.size for each in module.sizes or ()}
        kept = tuple((sizes[each.name], each.name) for each in served_classes(module, served))
        return cls(specs_of(module.takes), tuple((size, name) for name, size in sizes.items()), kept, module.size_step)

    def class_of(self, sample: Sequence[Array]) -> str:
        """The name of the smallest class that a sample fits into; `takes` its shapes."""
        _, name = self._smallest(self.classes, sample)
        return name

    def served_by(self, sample: Sequence[Array]) -> str:
        """The name of the smallest class with replicas that a sample fits into."""
        _, name = self._smallest(self.served, sample)
        return name

    def padded(self, batch: Sequence[Sequence[Array]], *, any_size: bool = False) -> list[list[Array]]:
        """The samples of a batch at one size: their arrays, or copies that are filled up at the end.

        It is the size of the class that serves them. With `any_size`, it is the next multiple of the step that all fit
        into, if it is smaller.
        """
        largest = max(map(self._size, batch), default=0)
        size, _ = self.served[bisect_left(self.served, (largest, ""))]
        if any_size and self.step is not None:
            size = min(size, -(-largest // self.step) * self.step)
        return [
            [_padded(array, spec, size) for array, spec in zip(sample, self.specs, strict=True)] for sample in batch
        ]

    def _smallest(self, classes: Sequence[tuple[int, str]], sample: Sequence[Array]) -> tuple[int, str]:
        return classes[bisect_left(classes, (self._size(sample), ""))]

    def _size(self, sample: Sequence[Array]) -> int:
        return max(varying_sizes(self.specs, [array.shape for array in sample]))


def varying_sizes(specs: Sequence[TensorSpec], shapes: Sequence[Sequence[int]]) -> set[int]:
    """The sizes of a sample's inputs in the dimensions that vary: one size, if the sample is right."""
    return {
        shape[spec.variable_dimension]
        for spec, shape in zip(specs, shapes, strict=True)
        if spec.variable_dimension is not None
    }


def _padded(array: Array, spec: TensorSpec, size: int) -> Array:
    dimension = spec.variable_dimension
    if dimension is None or array.shape[dimension] == size:
        return array
    larger = np.full(
        (*array.shape[:dimension], size, *array.shape[dimension + 1 :]), float(spec.padding or 0), array.dtype
    )
    larger[tuple(slice(given) for given in array.shape)] = array
    return larger


def padded_rows(rows: Sequence[Array]) -> Array:
    """Rows of one number of dimensions as one tensor: smaller ones are filled up with 0 at the end."""
    shape = tuple(max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True))
    stacked = np.zeros((len(rows), *shape), rows[0].dtype)
    for number, row in enumerate(rows):
        stacked[number][tuple(slice(size) for size in row.shape)] = row
    return stacked
