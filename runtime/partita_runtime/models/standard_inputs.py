"""The standard input for the capture, check and timing of every model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partita_api.session.module import DType, TensorSpec

SEED = 20  # any constant: all GPU classes must get the same numbers


def standard_input(spec: TensorSpec, batch: int) -> NDArray[Any]:
    """An array [batch, *spec.shape], the same in every process.

    Floats are standard normal like normalized images; bytes are uniform; integers are 0 or 1, which are in every
    vocabulary.
    """
    shape = (batch, *spec.shape)
    random = np.random.default_rng(SEED)
    match spec.dtype:
        case DType.FP32:
            return random.standard_normal(shape, np.float32)
        case DType.FP16:
            return random.standard_normal(shape, np.float32).astype(np.float16)
        case DType.UINT8:
            return random.integers(0, 256, shape, np.uint8)
        case DType.INT64:
            return random.integers(0, 2, shape, np.int64)
        case DType.INT32:
            return random.integers(0, 2, shape, np.int32)
