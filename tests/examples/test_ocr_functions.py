"""The CPU steps of the example `ocr`: which detector a picture goes to, which lines are turned, what is read."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ocr.comparison import Comparison
from ocr.functions import SETTINGS, PictureError, decoded, packed, padded_ratios, prepare, text, turn, unpacked
from ocr.pictures import LAYOUTS, rendered
from PIL import Image
from rapidocr.ch_ppocr_det.utils import DetPreProcess
from rapidocr.utils.load_image import LoadImage
from tests.examples.conftest import EXAMPLES

EXIF_ORIENTATION = 0x0112


def encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and has no pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def blank(width: int, height: int) -> bytes:
    return encoded(Image.new("RGB", (width, height), (200, 200, 200)))


def prepared(picture: bytes) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in prepare({"input": np.array([picture], np.object_)}, {}).items()}


def turned(picture: Image.Image) -> Image.Image:
    """A camera's picture, which says in its EXIF data how to turn it."""
    exif = picture.getexif()
    exif[EXIF_ORIENTATION] = 6
    picture.info["exif"] = exif.tobytes()
    return picture


@pytest.mark.parametrize(
    ("picture", "kind"),
    [
        pytest.param(rendered(LAYOUTS["night"]).picture, "PNG", id="colours"),
        pytest.param(rendered(LAYOUTS["night"]).picture, "JPEG", id="jpeg"),
        pytest.param(rendered(LAYOUTS["note"]).picture.convert("L"), "PNG", id="grey"),
        pytest.param(rendered(LAYOUTS["note"]).picture.convert("1"), "PNG", id="black and white"),
        pytest.param(rendered(LAYOUTS["note"]).picture.convert("LA"), "PNG", id="grey with alpha"),
        pytest.param(rendered(LAYOUTS["note"]).picture.convert("RGBA"), "PNG", id="alpha"),
        pytest.param(rendered(LAYOUTS["note"]).picture.convert("P"), "PNG", id="palette"),
        pytest.param(turned(rendered(LAYOUTS["night"]).picture), "JPEG", id="turned by EXIF"),
    ],
)
def test_pictures_are_decoded_as_the_package_decodes_files(picture: Image.Image, kind: str, tmp_path: Path) -> None:
    data = encoded(picture, kind, exif=picture.info.get("exif", b""))
    (tmp_path / "picture").write_bytes(data)

    np.testing.assert_array_equal(decoded(data), LoadImage()(tmp_path / "picture"))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"hello", "this is not a picture; send a file such as PNG or JPEG", id="text"),
        pytest.param(b"", "this is not a picture", id="nothing"),
        pytest.param(blank(400, 300)[:200], "cannot be decoded", id="cut off"),
        pytest.param(png_header(20_000, 20_000), "more than 50,000,000 pixels", id="400 million pixels"),
        pytest.param(png_header(8_000, 8_000), "more than 50,000,000 pixels", id="64 million pixels"),
        pytest.param(blank(1, 2000), "at most 60 times as wide as high, and 8 times as high as wide", id="too tall"),
        pytest.param(blank(6100, 100), "the picture has 6100 x 100 pixels", id="too wide"),
    ],
)
def test_what_is_no_picture_of_text_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(PictureError, match=says):
        prepared(data)


@pytest.mark.parametrize(
    ("width", "height", "detector", "shape"),
    [
        pytest.param(1, 1, "detector-wide", (736, 736), id="one pixel"),
        pytest.param(320, 120, "detector-wide", (736, 1952), id="enlarged to the least height"),
        pytest.param(1500, 190, "detector-wide", (736, 5824), id="the widest without added space"),
        pytest.param(2000, 60, "detector-wide", (736, 2944), id="one line, with space above and below"),
        pytest.param(480, 800, "detector-tall", (1216, 736), id="enlarged to the least width"),
        pytest.param(100, 800, "detector-tall", (5888, 736), id="the tallest"),
        pytest.param(1920, 1080, "detector-large", (1088, 1984), id="a screen"),
        pytest.param(4000, 3000, "detector-large", (1504, 1984), id="a photo, made smaller"),
        pytest.param(3000, 4000, "detector-large", (1984, 1984), id="a portrait, beside empty space"),
    ],
)
def test_detectors_take_pictures_by_size(width: int, height: int, detector: str, shape: tuple[int, int]) -> None:
    given = prepared(blank(width, height))

    assert given.keys() == {detector, "crops", "text"}
    assert given[detector].shape == (1, 3, *shape)
    assert given[detector].dtype == np.float32


def test_detectors_take_the_numbers_of_the_package() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (736, 768, 3), np.uint8)

    given = prepared(encoded(Image.fromarray(picture[:, :, ::-1])))

    settings = SETTINGS.Det
    package = DetPreProcess(settings.limit_side_len, settings.limit_type, settings.mean, settings.std)
    np.testing.assert_array_equal(given["detector-wide"], package(picture))


def test_lines_wider_than_the_recognizer_takes_are_squeezed() -> None:
    (manifest,) = yaml.safe_load_all((EXAMPLES / "ocr" / "manifests" / "session.yaml").read_text())
    (widest,) = (m["input"]["shape"][2] for m in manifest["spec"]["modules"] if m["name"] == "recognizer")
    lines = [np.zeros((30, width, 3), np.uint8) for width in (300, 2000, 9000)]
    upstream = {"crops": [packed(lines)[None]], "classifier": [np.array([[1.0, 0.0]] * 3, np.float32)]}

    assert max(line.shape[2] for line in turn({}, upstream)["recognizer"]) == widest


def test_only_lines_that_are_surely_upside_down_are_turned() -> None:
    line = np.zeros((48, 320, 3), np.uint8)
    line[:, :160] = 255
    upstream = {
        "crops": [packed([line, line, line])[None]],
        "classifier": [np.array([[0.95, 0.05], [0.15, 0.85], [0.05, 0.95]], np.float32)],
    }

    given = turn({}, upstream)["recognizer"]

    assert [bool(array[0, 0, 0] > 0) for array in given] == [True, True, False]


@pytest.mark.parametrize(
    ("widths", "padded"),
    [
        pytest.param([], [], id="no line"),
        pytest.param([48, 100], [320, 320], id="short lines"),
        pytest.param([500, 100, 400], [500, 500, 500], id="to the widest"),
        pytest.param([900, 50, 60, 70, 80, 90, 100], [900, 320, 320, 320, 320, 320, 320], id="groups of six by width"),
    ],
)
def test_lines_are_padded_in_the_groups_of_the_package(widths: list[int], padded: list[int]) -> None:
    found = padded_ratios([np.zeros((48, width, 3), np.uint8) for width in widths])

    assert [round(48 * ratio) for ratio in found] == padded


@given(st.lists(hnp.arrays(np.uint8, hnp.array_shapes(min_side=0, max_dims=3, max_side=4)), max_size=4))
def test_packed_arrays_stay_what_they_are(arrays: list[np.ndarray]) -> None:
    found = unpacked(packed(arrays))

    assert len(found) == len(arrays)
    for one, other in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def read(*lines: tuple[str, float], boxes: int | None = None) -> dict[str, np.ndarray]:
    """What `text` makes of lines that the recognizer has read with these scores."""
    from ocr.models import characters

    number = {character: i for i, character in enumerate(["blank", *characters(), " "])}
    positions = max((2 * len(line) for line, _ in lines), default=0)
    numbers, scores = np.zeros((len(lines), positions), np.int64), np.zeros((len(lines), positions), np.float32)
    for row, (line, score) in enumerate(lines):
        numbers[row, : 2 * len(line) : 2] = [number[character] for character in line]
        scores[row] = score
    found = np.zeros((len(lines) if boxes is None else boxes, 4, 2), np.float32)
    place = np.array([10, 2.0, 4.0, 100, 200])
    upstream = {"prepare": [place[None]], "crops": [found[None] + 30], "recognizer": [numbers, scores]}
    return {name: np.asarray(value) for name, value in text({}, upstream).items()}


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param([], [], id="no line"),
        pytest.param([("Hello", 0.9), ("world!", 0.8)], ["Hello", "world!"], id="in order"),
        pytest.param([("aabb", 0.9)], ["aabb"], id="characters twice"),
        pytest.param([("guess", 0.4), ("sure", 0.6)], ["sure"], id="an unsure one is left out"),
        pytest.param([(" ", 0.9), ("a b", 0.9)], ["a b"], id="an empty one is left out"),
    ],
)
def test_lines_are_read(lines: list[tuple[str, float]], want: list[str]) -> None:
    found = read(*lines)

    assert found["lines"].tolist() == want
    assert len(found["boxes"]) == len(found["scores"]) == len(want)


def test_boxes_are_in_the_original_picture() -> None:
    found = read(("a", 0.9))

    assert found["boxes"].tolist() == [[[120, 40]] * 4]  # 30 in the prepared one, below 10 added rows


def test_lines_that_are_not_read_are_counted() -> None:
    found = read(("a", 0.9), ("b", 0.9), boxes=5)

    assert (found["lines"].tolist(), int(found["left_out"])) == (["a", "b"], 3)


def test_characters_are_those_of_the_package() -> None:
    comparison = Comparison(served=["abd", "x"], package=["abc"])

    assert (comparison.different, comparison.characters) == (3, 3)
