"""Networks of the example `ocr` answer for padded inputs as the package's networks do without padding."""

import numpy as np
import onnxruntime
import pytest
import torch
from ocr.models import FILES, detector, packaged, recognizer
from ocr.padding import PADDING
from ocr.pictures import Layout, rendered

from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.stage_build import StageBuild


def pixels(height: int, width: int) -> np.ndarray:
    """Words, as far as they have room, from -1 to 1."""
    picture = rendered(Layout(width, height, lines=4, words=30, size=30)).picture
    return (np.asarray(picture, np.float32) / 127.5 - 1).transpose(2, 0, 1)


def padded(array: np.ndarray, height: int, width: int) -> torch.Tensor:
    room = ((0, 0), (0, height - array.shape[1]), (0, width - array.shape[2]))
    return torch.from_numpy(np.pad(array, room, constant_values=PADDING)[None])


def answer(name: str, array: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(packaged(FILES[name]).SerializeToString())
    (found,) = session.run(None, {"x": array[None]})
    return np.asarray(found)


@pytest.mark.parametrize(
    ("size", "room"),
    [
        pytest.param((96, 160), (96, 160), id="none"),
        pytest.param((96, 160), (96, 320), id="on the right"),
        pytest.param((160, 96), (320, 96), id="at the bottom"),
        pytest.param((64, 96), (224, 192), id="more padding than picture"),
    ],
)
def test_padding_changes_no_probability(size: tuple[int, int], room: tuple[int, int]) -> None:
    picture = pixels(*size)
    want = answer("detector", picture)

    (found,) = detector()(padded(picture, *room))

    assert want.max() > 0.3, "something is found"
    np.testing.assert_allclose(found[:, :, : size[0], : size[1]], want, atol=2e-5)


@pytest.mark.parametrize(
    ("width", "room"),
    [
        pytest.param(320, 320, id="none"),
        pytest.param(320, 640, id="to twice the width"),
        pytest.param(333, 480, id="of a width that is no multiple of 8"),
        pytest.param(47, 1280, id="more padding than line"),
    ],
)
def test_padding_changes_no_character(width: int, room: int) -> None:
    line = pixels(48, width)
    want = answer("recognizer", line)
    positions = want.shape[1]

    characters, scores = recognizer()(padded(line, 48, room))

    np.testing.assert_array_equal(characters[:, :positions], want.argmax(-1))
    np.testing.assert_allclose(scores[:, :positions], want.max(-1), atol=1e-4)
    assert not characters[:, positions:].any(), "padding is blank"


def test_a_batch_has_pictures_with_and_without_padding() -> None:
    whole, part = pixels(96, 160), pixels(96, 64)

    (found,) = detector()(torch.cat([padded(whole, 96, 160), padded(part, 96, 160)]))

    np.testing.assert_allclose(found[:1], answer("detector", whole), atol=2e-5)
    np.testing.assert_allclose(found[1:, :, :, :64], answer("detector", part), atol=2e-5)


@pytest.mark.parametrize("width", [64, 160])
def test_a_stage_finds_text_in_pictures_of_any_width(width: int) -> None:
    source = ModelSource(entrypoint="ocr.models:detector")
    build = StageBuild(model=source, input=TensorSpec(shape=(3, 96, 160)), blocks=1, max_batch=1, any_size=True)
    stage = build_executor(build)
    picture = pixels(96, width)

    (found,) = stage.executor.run([picture[None]])

    assert (stage.any_size, found.shape) == (True, (1, 1, 96, 160))
    np.testing.assert_allclose(found[..., :width], answer("detector", picture), atol=2e-5)
