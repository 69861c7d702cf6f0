"""Samples of variable size: the shapes that an input takes, the size class of a sample, and its padding. Pure."""

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from partita_api.session.module import Module, TensorSpec
from partita_api.session.size_classes import SizeClass, served_classes, size_classes
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
class SizedInput:
    """The input of a module with size classes."""

    spec: TensorSpec
    dimension: int
    """The one that varies."""
    classes: tuple[tuple[int, str], ...]
    """Sizes and names of the size classes, the smallest first."""
    served: tuple[tuple[int, str], ...]
    """Those of them that have replicas; always the largest one."""

    @classmethod
    def of(cls, module: Module, served: Container[str]) -> Self:
        """The input of a module with `sizes`; the modules of a plan that are `served` have replicas."""
        assert module.input is not None
        assert module.input.variable_dimension is not None
        dimension = module.input.variable_dimension

        def sizes(classes: Sequence[SizeClass]) -> tuple[tuple[int, str], ...]:
            inputs = [(each.module.input, each.name) for each in classes]
            return tuple((spec.shape[dimension], name) for spec, name in inputs if spec is not None)

        return cls(module.input, dimension, sizes(size_classes(module)), sizes(served_classes(module, served)))

    def class_of(self, sample: Array) -> str:
        """The name of the smallest class that a sample fits into; `takes` its shape."""
        _, name = self._smallest(self.classes, sample)
        return name

    def served_by(self, sample: Array) -> str:
        """The name of the smallest class with replicas that a sample fits into."""
        _, name = self._smallest(self.served, sample)
        return name

    def padded(self, sample: Array) -> Array:
        """The sample at the size of the class that serves it: itself, or a copy that is filled up at the end."""
        size, _ = self._smallest(self.served, sample)
        if sample.shape[self.dimension] == size:
            return sample
        shape = (*sample.shape[: self.dimension], size, *sample.shape[self.dimension + 1 :])
        larger = np.full(shape, float(self.spec.padding or 0), sample.dtype)
        larger[tuple(slice(given) for given in sample.shape)] = sample
        return larger

    def _smallest(self, classes: Sequence[tuple[int, str]], sample: Array) -> tuple[int, str]:
        return classes[bisect_left(classes, (sample.shape[self.dimension], ""))]


def padded_rows(rows: Sequence[Array]) -> Array:
    """Rows of one number of dimensions as one tensor: smaller ones are filled up with 0 at the end."""
    shape = tuple(max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True))
    stacked = np.zeros((len(rows), *shape), rows[0].dtype)
    for number, row in enumerate(rows):
        stacked[number][tuple(slice(size) for size in row.shape)] = row
    return stacked
