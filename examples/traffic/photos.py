"""Real photographs for the traffic application: they lie in scikit-image's wheel, so nothing is downloaded."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from skimage import data, transform

from traffic.models import IMAGE_SIZE

# ImageNet's channel means and deviations, what vision models usually expect.
MEAN: Final = np.array((0.485, 0.456, 0.406), dtype=np.float32)
DEVIATION: Final = np.array((0.229, 0.224, 0.225), dtype=np.float32)


def photographs(count: int, seed: int = 0) -> NDArray[np.float32]:
    """`count` views of photographs, normalised: `[count, 3, 224, 224]`, the same for the same seed.

    Each view is a random square of one of the photographs, half of them mirrored.
    """
    generator = np.random.default_rng(seed)
    sources = _sources()
    return np.stack([_view(sources[i % len(sources)], generator) for i in range(count)])


def _sources() -> Sequence[NDArray[np.uint8]]:
    return (data.astronaut(), data.chelsea(), data.coffee(), data.rocket(), data.stereo_motorcycle()[0])


def _view(photograph: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.float32]:
    height, width, _ = photograph.shape
    side = int(min(height, width) * generator.uniform(0.6, 1.0))
    top = int(generator.integers(height - side + 1))
    left = int(generator.integers(width - side + 1))
    square = photograph[top : top + side, left : left + side]
    if generator.random() < 0.5:
        square = square[:, ::-1]
    view = transform.resize(square, (IMAGE_SIZE, IMAGE_SIZE), anti_aliasing=True).astype(np.float32)
    return np.ascontiguousarray(((view - MEAN) / DEVIATION).transpose(2, 0, 1))
