"""JPEG and PNG images as inputs: decoded, resized and normalized as their module declares. Pure."""

import io
from typing import Final

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from partita_api.session.module import DType, ImageFit, ImageInput, ImageLayout, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.inference import Body, InferRequest, RequestError, listed
from partita_runtime.serving.protocol.interface import Interface

IMAGE_TYPES: Final = ("image/jpeg", "image/png")
MAX_PIXELS: Final = 50_000_000
"""Largest image that is decoded: a file of a few hundred bytes can declare gigabytes of pixels."""
MAX_SIDE: Final = 65_535
"""Most pixels in a row or a column, as in a JPEG: every row takes memory of its own."""
MAX_IMAGE_BYTES: Final = 128 * 1024 * 1024
"""By default the most memory that the decoding of one image may take."""

_TOO_LARGE: Final = f"the image has more than {MAX_PIXELS} pixels, or more than {MAX_SIDE} in a row or a column"
_PIXEL_BYTES: Final = 4
"""Memory of a pixel of all modes but those with one byte, also of RGB."""
_FRAMES: Final = frozenset(bytes([0xC0 + k]) for k in range(16) if k not in (4, 8, 12))
"""The markers of a JPEG that begin its frame."""
_SEQUENTIAL_FRAMES: Final = (b"\xc0", b"\xc1")
_SCAN: Final = b"\xda"
_BEGINNINGS: Final = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def is_image(content_type: str, body: Body) -> bool:
    """Whether a request's body is an image, by its content type or its first bytes."""
    return content_type in IMAGE_TYPES or bytes(body[:8]).startswith(_BEGINNINGS)


def image_request(body: Body, interface: Interface) -> InferRequest:
    """A request whose body is one image. Raises RequestError (415) if the session does not accept that."""
    if interface.inputs.keys() != interface.images.keys() or len(interface.inputs) != 1:
        raise RequestError(
            415,
            "an image can only be the whole request of a session whose one input declares `image`; "
            f"the inputs are {listed(interface.inputs)}",
        )
    (name,) = interface.inputs
    return InferRequest(
        id=None, samples=1, inputs={}, outputs=None, binary=False, timeout_micros=None, images={name: (bytes(body),)}
    )


def image_tensor(data: bytes, spec: TensorSpec, image: ImageInput, max_bytes: int = MAX_IMAGE_BYTES) -> Array:
    """The tensor of a JPEG or PNG image: upright, in colour or grey, depending on the channels of `spec`.

    If a side of `spec` varies, the tensor has the proportions of the image, up to the largest size of that side.

    Raises RequestError (400) for data that is not an image, damaged, or takes more than `max_bytes` to decode.
    """
    channels_first = image.layout is ImageLayout.CHW
    channels, height, width = spec.shape if channels_first else (spec.shape[2], *spec.shape[:2])
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as opened:
            mode, size = "RGB" if channels == 3 else "L", (width, height)
            _check(opened, mode, size, _is_kept_whole(data), max_bytes)
            pixels = _pixels(opened, mode, size, _variable_side(spec, channels_first), image.fit)
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(400, f"{len(data)} bytes are not a JPEG or PNG image") from None
    except Image.DecompressionBombError:
        raise RequestError(400, _TOO_LARGE) from None
    except Exception as error:  # Pillow raises many kinds
        raise RequestError(400, f"the image of {len(data)} bytes is damaged: {error}") from None
    values = pixels.reshape(*pixels.shape[:2], channels)
    if spec.dtype is not DType.UINT8:
        values = values.astype(np.float32) / 255
        values = values - np.array([float(mean) for mean in image.mean or (0,)], np.float32)
        values = values / np.array([float(std) for std in image.std or (1,)], np.float32)
    if channels_first:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values, NUMPY_DTYPES[spec.dtype])


def _check(image: Image.Image, mode: str, size: tuple[int, int], kept_whole: bool, max_bytes: int) -> None:
    """Raise RequestError (400) if the image is not decoded. Prepares a JPEG to be decoded at a smaller size."""
    width, height = image.size
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise RequestError(400, _TOO_LARGE)
    if image.mode.startswith(("I", "F")):
        raise RequestError(400, f"an image with {image.mode} pixels is not supported; send 8 bits a channel")
    kept = 2 * width * height * len(image.getbands()) if kept_whole else 0
    image.draft(mode, (max(size), max(size)))  # it may be turned afterwards
    pixel_bytes = 1 if image.mode in ("1", "L", "P") else _PIXEL_BYTES
    if image.mode != mode or _may_be_turned(image):
        pixel_bytes += _PIXEL_BYTES
    needed = kept + pixel_bytes * image.width * image.height
    if needed > max_bytes:
        raise RequestError(
            400,
            f"the image of {width} x {height} pixels takes {needed} bytes to decode, of at most {max_bytes}; "
            "send a smaller one, or a JPEG that is not progressive",
        )


def _may_be_turned(image: Image.Image) -> bool:
    """Whether the image is copied to turn it upright. A PNG says that at its end."""
    return image.format == "PNG" or bool(image.getexif().get(ExifTags.Base.Orientation, 1) != 1)


def _is_kept_whole(data: bytes) -> bool:
    """Whether the decoder keeps a whole JPEG in memory: it is progressive, or its first scan is not of all colours."""
    position, components = 2, 0
    while data[:2] == b"\xff\xd8" and data[position : position + 1] == b"\xff":
        marker, length = data[position + 1 : position + 2], int.from_bytes(data[position + 2 : position + 4])
        if marker in _FRAMES:
            if marker not in _SEQUENTIAL_FRAMES:
                return True
            components = int.from_bytes(data[position + 9 : position + 10])
        elif marker == _SCAN:
            return data[position + 4 : position + 5] != bytes([components])
        position += 2 + length
    return data[:2] == b"\xff\xd8"  # unclear


def _variable_side(spec: TensorSpec, channels_first: bool) -> int | None:
    """Which of width (0) and height (1) varies; None if neither does."""
    height = 1 if channels_first else 0
    return None if spec.variable_dimension is None else 1 - (spec.variable_dimension - height)


def _in_proportion(given: tuple[int, int], size: tuple[int, int], side: int) -> tuple[int, int]:
    """`size` with the side that has the proportions of a given image, between 1 and what it is in `size`."""
    scaled = max(1, min(size[side], round(given[side] * size[1 - side] / given[1 - side])))
    return (scaled, size[1]) if side == 0 else (size[0], scaled)


def _pixels(image: Image.Image, mode: str, size: tuple[int, int], side: int | None, fit: ImageFit) -> Array:
    """[height, width] or [height, width, 3] bytes; `side` varies (see `_variable_side`)."""
    ImageOps.exif_transpose(image, in_place=True)
    upright = image if image.mode == mode else image.convert(mode)
    if side is not None:
        size = _in_proportion(upright.size, size, side)
    if fit is ImageFit.CROP:
        fitted = ImageOps.fit(upright, size, Image.Resampling.BILINEAR)
    else:
        fitted = upright.resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(fitted)
