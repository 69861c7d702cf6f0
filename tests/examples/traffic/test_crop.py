"""Cropping what the detector found: where crops go, what they show, and what happens to nonsense."""

import importlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from traffic.functions import crop
from traffic.labels import DETECTOR_LABELS

CLASSES = len(DETECTOR_LABELS) + 1


def answer(*detections: tuple[str, float, tuple[float, float, float, float]]) -> np.ndarray:
    """A detector's answer with these (label, logit, box) and, beside them, four queries that found nothing."""
    rows = np.zeros((len(detections) + 4, 4 + CLASSES), dtype=np.float32)
    rows[:, -1] = 9
    for row, (label, logit, box) in zip(rows, detections, strict=False):
        row[:4] = box
        row[4 + DETECTOR_LABELS.index(label)] = logit
        row[-1] = 0
    return rows


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """A photograph."""
    photograph: np.ndarray = importlib.import_module("traffic.photos").photographs(1)[0]
    return photograph


def counts(found: dict[str, np.ndarray]) -> tuple[int, int]:
    return len(found["vehicle"]), len(found["person"])


@pytest.mark.parametrize(
    ("detections", "want_counts"),
    [
        pytest.param([("car", 9, (0.5, 0.5, 0.2, 0.2))] * 3, (3, 0), id="vehicles only"),
        pytest.param([("child", 9, (0.5, 0.5, 0.2, 0.2))] * 3, (0, 3), id="persons only"),
        pytest.param(
            [("bus", 9, (0.5,) * 4), ("cyclist", 8, (0.4,) * 4), ("car", 7, (0.3,) * 4)], (2, 1), id="both kinds"
        ),
        pytest.param(
            [("car", 1, (0.5,) * 4)] * 5 + [("child", 9, (0.5,) * 4)] * 3, (0, 3), id="the surest three are taken"
        ),
    ],
)
def test_each_detection_goes_to_its_classifier(
    detections: list[tuple[str, float, tuple[float, float, float, float]]],
    want_counts: tuple[int, int],
    image: np.ndarray,
) -> None:
    found = crop({"input": image}, {"detector": [answer(*detections)]})

    assert counts(found) == want_counts
    assert all(images.shape[1:] == (3, 128, 128) and images.dtype == np.float32 for images in found.values())


@pytest.mark.parametrize("size", [32, 64, 224])
def test_box_around_the_whole_image_is_the_image_resized(size: int, image: np.ndarray) -> None:
    whole = [("car", 9.0, (0.5, 0.5, 1.0, 1.0))]

    found = crop({"input": image}, {"detector": [answer(*whole)]}, size=size, most=1)

    resized = torch.nn.functional.interpolate(
        torch.from_numpy(image)[None], size=(size, size), mode="bilinear", align_corners=True
    )
    np.testing.assert_allclose(found["vehicle"], resized.numpy(), atol=2e-4)


def test_crop_shows_what_is_in_its_box() -> None:
    image = np.zeros((3, 100, 100), dtype=np.float32)
    image[:, 20:40, 60:80] = 1
    inside = [("car", 9.0, (0.7, 0.3, 0.16, 0.16)), ("child", 8.0, (0.2, 0.8, 0.2, 0.2))]

    found = crop({"input": image}, {"detector": [answer(*inside)]}, most=2)

    assert found["vehicle"].min() == 1
    assert found["person"].max() == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(np.zeros((48, 4 + CLASSES), dtype=np.float32), id="zeros, as emulated accelerators answer"),
        pytest.param(np.full((48, 4 + CLASSES), np.nan, dtype=np.float32), id="not a number"),
        pytest.param(np.full((48, 4 + CLASSES), np.inf, dtype=np.float32), id="infinite"),
    ],
)
def test_answer_that_tells_nothing_apart_gives_two_vehicles_and_a_person(
    nonsense: np.ndarray, image: np.ndarray
) -> None:
    found = crop({"input": image}, {"detector": [nonsense]})

    assert counts(found) == (2, 1)


@settings(max_examples=60, deadline=None)
@given(
    rows=hnp.arrays(np.float32, (6, 4 + CLASSES), elements=st.floats(width=32)),
    size=st.integers(1, 40),
)
def test_no_box_is_too_strange(image: np.ndarray, rows: np.ndarray, size: int) -> None:
    found = crop({"input": image}, {"detector": [rows]}, size=size)

    assert sum(counts(found)) == 3
    assert all(np.isfinite(images).all() for images in found.values())


@torch.no_grad()
def test_photograph_goes_through_the_whole_application() -> None:
    models = importlib.import_module("traffic.models")
    photos = importlib.import_module("traffic.photos").photographs(10)
    detections = models.detector()(torch.from_numpy(photos)).numpy()

    found = [crop({"input": photo}, {"detector": [rows]}) for photo, rows in zip(photos, detections, strict=True)]
    vehicles = models.vehicle_classifier()(torch.from_numpy(np.concatenate([f["vehicle"] for f in found])))
    persons = models.person_classifier()(torch.from_numpy(np.concatenate([f["person"] for f in found])))

    assert len(vehicles) + len(persons) == 30
    assert len(vehicles) > 5
    assert len(persons) > 3
    assert len({counts(f) for f in found}) > 1, "photographs differ in what is on them"
