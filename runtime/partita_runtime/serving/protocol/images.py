"""JPEG and PNG images as inputs: decoded, resized and normalized as their module declares."""

import asyncio
import io
from typing import Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from partita_api.session.module import DType, ImageFit, ImageInput, ImageLayout, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.inference import Body, InferRequest, RequestError, listed
from partita_runtime.serving.protocol.interface import Interface

IMAGE_TYPES: Final = ("image/jpeg", "image/png")
MAX_PIXELS: Final = 50_000_000
"""Largest image that is decoded: a file of a few hundred bytes can declare gigabytes of pixels."""

_TOO_LARGE: Final = f"the image has more than {MAX_PIXELS} pixels"
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


async def with_images(request: InferRequest, interface: Interface) -> InferRequest:
    """The same request with tensors instead of images, which are decoded in threads.

    Raises RequestError (400) for data that is not an image.
    """
    tensors = dict(request.inputs)
    for name, images in request.images.items():
        spec, image = interface.inputs[name], interface.images[name]
        rows = await asyncio.gather(*(asyncio.to_thread(image_tensor, data, spec, image) for data in images))
        tensors[name] = np.stack(rows)
    return request._replace(inputs=tensors, images={})


def image_tensor(data: bytes, spec: TensorSpec, image: ImageInput) -> Array:
    """The tensor of a JPEG or PNG image: upright, in colour or grey, depending on the channels of `spec`.

    Raises RequestError (400) for data that is not an image, damaged, or too large.
    """
    channels_first = image.layout is ImageLayout.CHW
    channels, height, width = spec.shape if channels_first else (spec.shape[2], *spec.shape[:2])
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as opened:
            pixels = _pixels(opened, "RGB" if channels == 3 else "L", (width, height), image.fit)
    except UnidentifiedImageError:
        raise RequestError(400, f"{len(data)} bytes are not a JPEG or PNG image") from None
    except Image.DecompressionBombError:
        raise RequestError(400, _TOO_LARGE) from None
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises
        raise RequestError(400, f"the image of {len(data)} bytes is damaged: {error}") from None
    values = pixels.reshape(height, width, channels)
    if spec.dtype is not DType.UINT8:
        values = values.astype(np.float32) / 255
        values = values - np.array([float(mean) for mean in image.mean or (0,)], np.float32)
        values = values / np.array([float(std) for std in image.std or (1,)], np.float32)
    if channels_first:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values, NUMPY_DTYPES[spec.dtype])


def _pixels(image: Image.Image, mode: str, size: tuple[int, int], fit: ImageFit) -> Array:
    """[height, width] or [height, width, 3] bytes."""
    if image.width * image.height > MAX_PIXELS:
        raise RequestError(400, _TOO_LARGE)
    if image.mode.startswith(("I", "F")):
        raise RequestError(400, f"an image with {image.mode} pixels is not supported; send 8 bits a channel")
    image.draft(mode, (max(size), max(size)))  # decodes a JPEG at a smaller size; it may be turned afterwards
    upright = ImageOps.exif_transpose(image).convert(mode)
    if fit is ImageFit.CROP:
        fitted = ImageOps.fit(upright, size, Image.Resampling.BILINEAR)
    else:
        fitted = upright.resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(fitted)
