"""The CPU steps of the ocr application: what the package rapidocr does before, between and after its networks.

The settings and most of the code are the package's. Pictures are in its order of channels: blue, green, red.
"""

import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from rapidocr.ch_ppocr_cls import TextClassifier
from rapidocr.ch_ppocr_cls.main import CLS_SHAPE_BY_OCR_VERSION
from rapidocr.ch_ppocr_det import TextDetector
from rapidocr.ch_ppocr_det.utils import DBPostProcess, DetPreProcess
from rapidocr.ch_ppocr_rec import TextRecognizer
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode
from rapidocr.main import DEFAULT_CFG_PATH
from rapidocr.utils.load_image import LoadImage
from rapidocr.utils.parse_parameters import ParseParams
from rapidocr.utils.process_img import (
    apply_vertical_padding,
    get_rotate_crop_image,
    map_boxes_to_original,
    resize_image_within_bounds,
)

from ocr.models import characters
from ocr.padding import PADDING
from partita_runtime.functions import RequestRefusedError

Array = NDArray[Any]
Upstream = Mapping[str, Sequence[Array]]

SETTINGS: Final = ParseParams.load(DEFAULT_CFG_PATH)
MOST_PIXELS: Final = 50_000_000
WIDEST: Final = 60
"""The most times that a picture may be as wide as high. The package adds space above and below."""
TALLEST: Final = 8
"""The most times that a picture may be as high as wide."""
MOST_LINES: Final = 256
"""The most lines of a picture that are read: the largest fan-out."""
LARGEST: Final = 1984
"""The longest side of a picture for the detector of large pictures."""
WIDEST_LINE: Final = 64
"""The most times that a line is as wide as high for the recognizer. Wider ones are squeezed to this."""


_TOO_LARGE: Final = f"the picture has more than {MOST_PIXELS:,} pixels; make it smaller"


class PictureError(RequestRefusedError):
    """A picture that cannot be read; the message says what is expected."""


def prepare(request: Mapping[str, Array], _upstream: Upstream) -> dict[str, Array | list[Array]]:
    """Decode a picture and resize it for one of the detectors.

    `request["input"]` is the encoded picture `[1]`. `detector-wide` gets pictures of height 736, `detector-tall`
    those of width 736, `detector-large` all others. `crops` gets the picture whose parts it cuts out, and `text` how
    to find a place of this picture in the original one. Raises PictureError.
    """
    original = decoded(request["input"].item())
    height, width = original.shape[:2]
    if width > WIDEST * height or height > TALLEST * width:
        raise PictureError(
            f"the picture has {width} x {height} pixels; it may be at most {WIDEST} times as wide as high, and "
            f"{TALLEST} times as high as wide: cut it into parts"
        )
    settings = SETTINGS.Global
    bounded, ratio_h, ratio_w = resize_image_within_bounds(original, settings.min_side_len, settings.max_side_len)
    picture, padding = apply_vertical_padding(bounded, {}, settings.width_height_ratio, settings.min_height)
    pixels = _pixels(picture)
    place = np.array([padding["padding_1"]["top"], ratio_h, ratio_w, height, width], np.float64)
    return {**_for_detector(pixels), "crops": packed([picture, np.array(pixels.shape[1:])]), "text": place}


def crops(_request: Mapping[str, Array], upstream: Upstream, *, most: int = MOST_LINES) -> dict[str, Array]:
    """Cut the lines of text out of the picture, in reading order.

    `upstream` has the picture of `prepare`, and the probabilities of one of the detectors. `classifier` gets the first
    `most` lines as `[n, 3, 48, 192]`, `turn` the same lines in full size, `text` the boxes `[lines, 4, 2]` of all.
    """
    picture, (height, width) = unpacked(upstream["prepare"][0][0])
    (probabilities,) = (
        answer for module, tensors in upstream.items() if module != "prepare" for answer in (tensors or [()])[0]
    )
    boxes, _ = _finding()(probabilities[None, :, :height, :width], picture.shape[:2])
    boxes = TextDetector.sorted_boxes(boxes).astype(np.float32).reshape(-1, 4, 2)
    lines = [get_rotate_crop_image(picture, box.copy()) for box in boxes[:most]]
    return {
        "classifier": _stacked([_TURNING.resize_norm_img(line) for line in lines], (3, 48, 192)),
        "turn": packed(lines),
        "text": boxes,
    }


def turn(_request: Mapping[str, Array], upstream: Upstream) -> dict[str, list[Array]]:
    """Turn lines that are upside down; `recognizer` gets all lines as arrays `[3, 48, width]`.

    `upstream` has the lines of `crops`, and the classifier's probabilities `[n, 2]`.
    """
    (probabilities,) = upstream["classifier"] or [()]
    lines = [
        cv2.rotate(line, cv2.ROTATE_180) if upside_down > SETTINGS.Cls.cls_thresh else line
        for line, (_, upside_down) in zip(unpacked(upstream["crops"][0][0]), probabilities, strict=True)
    ]
    return {
        "recognizer": [
            _READING.resize_norm_img(line, ratio).astype(np.float32)
            for line, ratio in zip(lines, padded_ratios(lines), strict=True)
        ]
    }


def text(_request: Mapping[str, Array], upstream: Upstream) -> dict[str, Any]:
    """The lines of text of a picture in reading order, where they are, and how sure they are.

    `left_out` is the number of further lines, which were found but not read.
    """
    place, boxes = upstream["prepare"][0][0], upstream["crops"][0][0]
    answers = zip(*(upstream["recognizer"] or ((), ())), strict=True)
    found = [
        _decoding().decode(numbers[None], scores[None], remove_duplicate=True)[0][0] for numbers, scores in answers
    ]
    kept = [i for i, (line, score) in enumerate(found) if line.strip() and score >= SETTINGS.Global.text_score]
    return {
        "lines": np.array([found[i][0] for i in kept], np.object_),
        "scores": np.array([found[i][1] for i in kept], np.float32),
        "boxes": _in_original(boxes[kept], place),
        "left_out": np.array(len(boxes) - len(found)),
    }


def decoded(encoded: bytes) -> Array:
    """A picture as `[height, width, 3]`, upright. Raises PictureError."""
    try:
        with Image.open(io.BytesIO(encoded)) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise PictureError(_TOO_LARGE)
            return np.ascontiguousarray(LoadImage()(ImageOps.exif_transpose(picture)))
    except PictureError:
        raise
    except Image.DecompressionBombError:
        raise PictureError(_TOO_LARGE) from None
    except UnidentifiedImageError:
        raise PictureError("this is not a picture; send a file such as PNG or JPEG") from None
    except Exception as error:
        raise PictureError(f"the picture cannot be decoded ({error}); send a file such as PNG or JPEG") from error


def padded_ratios(lines: Sequence[Array]) -> list[float]:
    """To which width each line is padded, as a multiple of its height: as the package does it.

    It sorts lines by their proportions, and pads groups of six to the widest of them, and at least to 320 pixels.
    Unlike the package, none is wider than WIDEST_LINE.
    """
    _, height, width = SETTINGS.Rec.rec_img_shape
    ratios = np.array([min(WIDEST_LINE, line.shape[1] / line.shape[0]) for line in lines])
    padded = np.empty(len(lines))
    order = np.argsort(ratios)
    for start in range(0, len(lines), SETTINGS.Rec.rec_batch_num):
        group = order[start : start + SETTINGS.Rec.rec_batch_num]
        padded[group] = max(width / height, *ratios[group])
    return [float(ratio) for ratio in padded]


def packed(arrays: Sequence[Array]) -> Array:
    """Arrays of any shapes as one array, for an edge between two functions."""
    archive = io.BytesIO()
    np.savez(archive, *arrays)
    return np.frombuffer(archive.getvalue(), np.uint8)


def unpacked(archive: Array) -> list[Array]:
    """The arrays that `packed` has put together."""
    with np.load(io.BytesIO(archive.tobytes())) as found:
        return [found[name] for name in found.files]


def _pixels(picture: Array) -> Array:
    """What the detector takes for a picture, without a batch dimension."""
    pixels = _preprocessing()(picture)
    if pixels is None:
        raise PictureError("the picture is too small; send a larger one")
    found: Array = pixels[0]
    return found


def _for_detector(pixels: Array) -> dict[str, list[Array]]:
    """The detector for pixels `[3, height, width]`, and its input."""
    _, height, width = pixels.shape
    short = SETTINGS.Det.limit_side_len
    if height == short:
        return {"detector-wide": [pixels]}
    if width == short:
        return {"detector-tall": [pixels]}
    beside = ((0, 0), (0, 0), (0, LARGEST - width))
    return {"detector-large": [np.pad(pixels, beside, constant_values=PADDING)]}


def _stacked(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return np.stack(arrays).astype(np.float32) if arrays else np.empty((0, *shape), np.float32)


def _in_original(boxes: Array, place: Array) -> Array:
    """Boxes of the prepared picture as boxes of the original one, in pixels."""
    top, ratio_h, ratio_w, height, width = place.tolist()
    operations = {"preprocess": {"ratio_h": ratio_h, "ratio_w": ratio_w}, "padding_1": {"top": top, "left": 0}}
    found: Array = map_boxes_to_original(boxes.astype(np.float32), operations, height, width)
    return found.astype(np.float32)


class _Turning(TextClassifier):
    """The package's classifier without its network."""

    def __init__(self) -> None:
        self.cls_image_shape = CLS_SHAPE_BY_OCR_VERSION[SETTINGS.Cls.ocr_version]


class _Reading(TextRecognizer):
    """The package's recognizer without its network."""

    def __init__(self) -> None:
        self.rec_image_shape = SETTINGS.Rec.rec_img_shape


class _Preprocessing(DetPreProcess):
    """The package's, with a table of its numbers for the 256 values that a channel of a pixel has."""

    def __init__(self) -> None:
        settings = SETTINGS.Det
        super().__init__(settings.limit_side_len, settings.limit_type, settings.mean, settings.std)
        values = np.arange(256, dtype=np.uint8).reshape(1, 256, 1).repeat(3, axis=2)
        self._numbers = super().normalize(values).astype(np.float32)

    def normalize(self, img: Array) -> Array:
        found: Array = cv2.LUT(img, self._numbers)
        return found


_TURNING: Final = _Turning()
_READING: Final = _Reading()


def _finding() -> DBPostProcess:
    settings = SETTINGS.Det
    return DBPostProcess(
        thresh=settings.thresh,
        box_thresh=settings.box_thresh,
        max_candidates=settings.max_candidates,
        unclip_ratio=settings.unclip_ratio,
        score_mode=settings.score_mode,
        use_dilation=settings.use_dilation,
    )


@cache
def _preprocessing() -> _Preprocessing:
    return _Preprocessing()


@cache
def _decoding() -> CTCLabelDecode:
    return CTCLabelDecode(character=characters())
