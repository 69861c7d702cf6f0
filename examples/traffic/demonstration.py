"""What `partita demo` sends to the session `traffic`.

python -m traffic.demonstration FILE    # writes requests for `partita load --payload FILE`
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traffic.photos import photographs


def requests(count: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """The inputs of `count` requests, by name; the same for the same seed."""
    return {"input": photographs(count, seed)}


def write_requests(path: Path, count: int = 16) -> None:
    """Write `count` requests, as `partita load` reads them."""
    np.savez(path, **requests(count, seed=0))


if __name__ == "__main__":
    write_requests(Path(sys.argv[1]))
