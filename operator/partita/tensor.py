"""The shape and the element type of a model's input, as users write them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from partita_api.session.module import DType
from partita_runtime.models.layers import NUMPY_DTYPES

_NAMES = {dtype.name: str(name) for name, dtype in NUMPY_DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """One sample of a model's input, without a batch dimension. It is validated with its session.

    >>> Tensor([3, 224, 224]).manifest(), Tensor([128], np.int64).manifest()
    ({'shape': [3, 224, 224], 'dtype': 'FP32'}, {'shape': [128], 'dtype': 'INT64'})
    """

    shape: Sequence[int]
    dtype: str | DTypeLike = DType.FP32
    """A name of the Open Inference Protocol (FP32, FP16, INT64, INT32, UINT8) or a type of numpy."""

    def manifest(self) -> dict[str, Any]:
        """It as a session's manifest has it."""
        return {"shape": list(self.shape), "dtype": self._name()}

    def _name(self) -> str:
        if isinstance(self.dtype, str) and self.dtype in list(DType):
            return str(self.dtype)
        try:
            found = np.dtype(self.dtype).name
        except TypeError:
            return str(self.dtype)
        return _NAMES.get(found, found)
