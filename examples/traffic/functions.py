"""The CPU step of the traffic application: from what the detector found to images for the classifiers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traffic.labels import DETECTOR_LABELS, VEHICLES

Image = NDArray[np.float32]
Box = NDArray[np.float32]
"""Centre x, centre y, width, height; fractions of the image."""

SMALLEST_SIDE: Final = 0.1
"""A box is widened to at least this fraction of the image."""

FALLBACK: Final[tuple[tuple[str, tuple[float, float, float, float]], ...]] = (
    ("car", (0.3, 0.6, 0.4, 0.4)),
    ("pedestrian", (0.7, 0.5, 0.3, 0.6)),
    ("truck", (0.5, 0.3, 0.5, 0.3)),
)
"""What a detector that tells nothing apart, such as an emulated one, is taken to have found."""


def crop(
    request: Mapping[str, Image],
    upstream: Mapping[str, Sequence[NDArray[np.float32]]],
    *,
    size: int = 128,
    most: int = 3,
) -> dict[str, Image]:
    """Cut the `most` surest detections out of the image and send each to its classifier.

    `request["input"]` is the image `[3, height, width]`, `upstream["detector"][0]` the detector's answer
    `[queries, 4 + classes + 1]`. Returns for `vehicle` and for `person` crops `[n, 3, size, size]`; n may be 0.
    """
    image = request["input"]
    crops: dict[str, list[Image]] = {"vehicle": [], "person": []}
    for label, box in _detections(upstream["detector"][0], most):
        crops["vehicle" if label in VEHICLES else "person"].append(_cut_out(image, box, size))
    nothing = np.empty((0, image.shape[0], size, size), dtype=np.float32)
    return {target: np.stack(found) if found else nothing for target, found in crops.items()}


def _detections(answer: NDArray[np.float32], most: int) -> Iterator[tuple[str, Box]]:
    boxes, logits = answer[:, :4].astype(np.float32), answer[:, 4:].astype(np.float32)
    if not np.isfinite(answer).all() or np.ptp(logits) == 0:
        for label, box in FALLBACK[:most]:
            yield label, np.asarray(box, dtype=np.float32)
        return
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = (exponentials / exponentials.sum(axis=1, keepdims=True))[:, : len(DETECTOR_LABELS)]
    surest = np.argsort(-probabilities.max(axis=1), kind="stable")[:most]
    for query in surest:
        yield DETECTOR_LABELS[int(probabilities[query].argmax())], boxes[query]


def _cut_out(image: Image, box: Box, size: int) -> Image:
    """The part of the image in the box, resized to `size` x `size` (bilinear)."""
    centre = box[:2].clip(0, 1)
    half = box[2:].clip(SMALLEST_SIDE, 1) / 2
    left, top = (centre - half).clip(0, 1 - SMALLEST_SIDE)
    right, bottom = (centre + half).clip(SMALLEST_SIDE, 1)
    height, width = image.shape[1:]
    above, below, y = _positions(top, bottom, height, size)
    before, after, x = _positions(left, right, width, size)

    def along_x(rows: Image) -> Image:
        return rows[:, :, before] * (1 - x) + rows[:, :, after] * x

    return along_x(image[:, above]) * (1 - y[:, None]) + along_x(image[:, below]) * y[:, None]


def _positions(
    start: float, end: float, pixels: int, size: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """For `size` points between two fractions of a side: the pixels around each, and its share of the later one."""
    where = np.linspace(start, end, size, dtype=np.float32) * (pixels - 1)
    first = np.floor(where).astype(np.intp).clip(0, pixels - 1)
    return first, (first + 1).clip(0, pixels - 1), (where - first).astype(np.float32)
