"""The standard input for the capture, check and timing of every model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partita_api.session.module import DType, Inputs, TensorSpec, specs_of
from partita_runtime.models.layers import NUMPY_DTYPES

SEED = 20  # any constant: all GPU classes must get the same numbers


def standard_inputs(inputs: Inputs, batch: int) -> list[NDArray[Any]]:
    """A standard input for each tensor that a model takes, with different numbers."""
    return [standard_input(spec, batch, SEED + number) for number, spec in enumerate(specs_of(inputs))]


def standard_input(spec: TensorSpec, batch: int, seed: int = SEED) -> NDArray[Any]:
    """An array [batch, *spec.shape], the same in every process.

    Floats are standard normal like normalized images; UINT8 is uniform; other integers are 0 or 1, which are in every
    vocabulary.
    """
    shape, dtype = (batch, *spec.shape), NUMPY_DTYPES[spec.dtype]
    random = np.random.default_rng(seed)
    if dtype.kind == "f":
        return random.standard_normal(shape, np.float32).astype(dtype, copy=False)
    return random.integers(0, 256 if spec.dtype is DType.UINT8 else 2, shape, dtype)
