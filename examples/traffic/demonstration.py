"""What `partita demo` sends to the session `traffic`."""

import numpy as np
from numpy.typing import NDArray

from traffic.photos import photographs


def requests(count: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """The inputs of `count` requests, by name; the same for the same seed."""
    return {"input": photographs(count, seed)}
