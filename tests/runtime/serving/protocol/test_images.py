"""Images as requests: conversion of pixels, ways to send them, and errors."""

import asyncio
import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image
from pydantic import ValidationError
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand
from tests.runtime.serving.plans import application

from partita_api.manifests import parse_manifests
from partita_api.session.module import DType, ImageInput, Module, TensorSpec
from partita_runtime.serving.protocol import grpc_codec
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.images import image_tensor
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.protocol.interface import Interface

EXAMPLE = Path(__file__).parents[4] / "examples" / "traffic" / "manifests" / "session.yaml"
RED, BLUE = (255, 0, 0), (0, 0, 255)


def picture(width: int = 40, height: int = 20) -> Image.Image:
    """Red on its left half, blue on its right."""
    made = Image.new("RGB", (width, height), RED)
    made.paste(BLUE, (width // 2, 0, width, height))
    return made


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def tensor(data: bytes, *shape: int, dtype: DType = DType.FP32, **image: Any) -> np.ndarray:
    return image_tensor(data, TensorSpec(shape=shape, dtype=dtype), ImageInput(**image))


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_channels_come_first_and_are_from_0_to_1(format: str) -> None:
    got = tensor(encoded(picture(), format), 3, 10, 20)
    assert (got.shape, got.dtype) == ((3, 10, 20), np.float32)
    np.testing.assert_allclose(got[:, 5, 2], (1, 0, 0), atol=0.02)
    np.testing.assert_allclose(got[:, 5, 17], (0, 0, 1), atol=0.02)


def test_they_are_normalised_by_channel() -> None:
    got = tensor(encoded(picture()), 3, 4, 4, mean=("0.5", "0.25", "0"), std=("0.5", "0.5", "2"))
    np.testing.assert_allclose(got[:, 0, 0], (1, -0.5, 0))
    np.testing.assert_allclose(got[:, 0, 3], (-1, -0.5, 0.5))


def test_uint8_pixels_stay_uint8_and_may_have_channels_last() -> None:
    got = tensor(encoded(picture()), 4, 8, 3, dtype=DType.UINT8, layout="HWC")
    assert (got.dtype, got[0, 0].tolist(), got[0, 7].tolist()) == (np.uint8, [*RED], [*BLUE])


def test_one_channel_is_grey_and_may_have_half_precision() -> None:
    got = tensor(encoded(Image.new("RGB", (5, 5), (128, 128, 128))), 1, 2, 2, dtype=DType.FP16)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, 128 / 255, atol=0.001)


def test_cropping_keeps_proportions_and_stretching_does_not() -> None:
    wide = Image.new("RGB", (90, 30), (0, 255, 0))
    wide.paste(RED, (0, 0, 30, 30))
    assert tensor(encoded(wide), 3, 6, 6)[0, 0, 0] > 0.9
    assert tensor(encoded(wide), 3, 6, 6, fit="Crop")[0].max() < 0.5  # the red third is cut off


TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera was held upright: the image needs a turn by 90 degrees


@pytest.mark.parametrize(
    ("width", "height", "spec", "image", "want"),
    [
        pytest.param(90, 30, {"shape": (3, 48, 1280), "variable_dimension": 2}, {}, (3, 48, 144), id="a wide one"),
        pytest.param(90, 3, {"shape": (3, 48, 1280), "variable_dimension": 2}, {}, (3, 48, 1280), id="too wide"),
        pytest.param(1, 900, {"shape": (3, 48, 1280), "variable_dimension": 2}, {}, (3, 48, 1), id="too narrow"),
        pytest.param(30, 90, {"shape": (3, 500, 20), "variable_dimension": 1}, {}, (3, 60, 20), id="of any height"),
        pytest.param(
            90, 30, {"shape": (48, 1280, 3), "variable_dimension": 1}, {"layout": "HWC"}, (48, 144, 3), id="HWC"
        ),
    ],
)
def test_a_side_that_varies_keeps_the_proportions(
    width: int, height: int, spec: dict[str, Any], image: dict[str, Any], want: tuple[int, ...]
) -> None:
    made = image_tensor(encoded(picture(width, height)), TensorSpec(**spec), ImageInput(**image))
    assert made.shape == want


def test_a_side_that_varies_is_that_of_the_upright_image() -> None:
    lines = TensorSpec(shape=(3, 10, 100), variable_dimension=2)
    assert image_tensor(encoded(picture(40, 20), "JPEG", exif=TURNED), lines, ImageInput()).shape == (3, 10, 5)


def test_of_an_image_that_is_too_wide_cropping_keeps_the_proportions() -> None:
    green = Image.new("RGB", (90, 30), (0, 255, 0))
    green.paste(RED, (0, 0, 30, 30))
    lines = TensorSpec(shape=(3, 6, 6), variable_dimension=2)
    assert image_tensor(encoded(green), lines, ImageInput())[0, 0, 0] > 0.9
    assert image_tensor(encoded(green), lines, ImageInput(fit="Crop"))[0].max() < 0.5


def test_photographs_are_turned_upright() -> None:
    got = tensor(encoded(picture(), "JPEG", exif=TURNED), 3, 40, 20)
    np.testing.assert_allclose(got[:, 2, 10], (1, 0, 0), atol=0.02)
    np.testing.assert_allclose(got[:, 37, 10], (0, 0, 1), atol=0.02)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_every_kind_of_pixels_is_read(mode: str) -> None:
    data = encoded(picture().convert(mode), "JPEG" if mode == "CMYK" else "PNG")
    assert tensor(data, 3, 4, 4).shape == (3, 4, 4)


def huge_png(side: int) -> bytes:
    """A few bytes that claim to be an image of side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"x") + chunk(b"IEND", b"")


BAD = [
    pytest.param(b"", "0 bytes are not a JPEG or PNG", id="nothing"),
    pytest.param(b"hello", "not a JPEG or PNG", id="not an image"),
    pytest.param(encoded(picture(), "GIF"), "not a JPEG or PNG", id="another format"),
    pytest.param(encoded(picture(400, 400), "JPEG")[:900], "damaged", id="half a JPEG"),
    pytest.param(encoded(picture())[:60], "damaged", id="half a PNG"),
    pytest.param(huge_png(8_000), "more than 50000000 pixels", id="too many pixels"),
    pytest.param(huge_png(100_000), "more than 50000000 pixels", id="far too many pixels"),
    pytest.param(encoded(Image.new("I;16", (4, 4))), "8 bits a channel", id="16 bits"),
]


@pytest.mark.parametrize(("data", "want_message"), BAD)
def test_invalid_images_are_explained(data: bytes, want_message: str) -> None:
    with pytest.raises(RequestError) as refused:
        tensor(data, 3, 8, 8)
    assert (refused.value.status, want_message in str(refused.value)) == (400, True), str(refused.value)


@pytest.mark.parametrize(
    ("shape", "dtype", "image", "want_words"),
    [
        pytest.param((8, 8), "FP32", {}, "three dimensions", id="flat"),
        pytest.param((8, 8, 3), "FP32", {}, "1 or 3 channels", id="channels last, undeclared"),
        pytest.param((3, 8, 8), "INT32", {}, "FP32, FP16 or UINT8", id="integers"),
        pytest.param((3, 8, 8), "UINT8", {"mean": ["0.5"] * 3}, "not normalised", id="normalised bytes"),
        pytest.param(
            (3, 8, 8), "FP32", {"mean": ["0.5"]}, "one number for each channel", id="one mean for three channels"
        ),
        pytest.param((3, 8, 8), "FP32", {"std": ["0"] * 3}, "above 0", id="std of 0"),
    ],
)
def test_invalid_declarations_are_refused(shape: Any, dtype: str, image: Any, want_words: str) -> None:
    with pytest.raises(ValidationError, match=want_words):
        Module.model_validate(
            {"name": "m", "model": {"entrypoint": "a:b"}, "input": {"shape": shape, "dtype": dtype}, "image": image}
        )


PHOTO = application("photo").model("only", input=(3, 8, 8), outputs=((4,),), image=ImageInput())


async def post(running: Stand, content: bytes, **headers: str) -> Any:
    return await running.client.post("/v2/models/photo/infer", content=content, headers=headers)


async def test_an_image_is_a_request() -> None:
    async with stand(PHOTO) as running:
        for format, headers in (
            ("JPEG", {"content-type": "image/jpeg"}),
            ("PNG", {"content-type": "image/png; charset=binary"}),
            ("PNG", {"content-type": "application/x-www-form-urlencoded"}),
            ("JPEG", {}),
        ):
            answer = await post(running, encoded(picture(), format), **headers)
            assert answer.status_code == 200, answer.text
            assert [output["shape"] for output in answer.json()["outputs"]] == [[1, 4]]
        answer = await post(running, b"hello", **{"content-type": "image/png"})
        assert (answer.status_code, "not a JPEG or PNG" in answer.json()["error"]) == (400, True), answer.text


def infer_images(url: str, array: np.ndarray) -> triton.InferResult:
    """The answer for a tensor of encoded images."""
    client = triton.InferenceServerClient(url)
    given = triton.InferInput("input", [*array.shape], "BYTES")
    given.set_data_from_numpy(array)
    try:
        return client.infer("photo", [given])
    finally:
        client.close()


async def test_images_may_be_a_tensor_of_bytes() -> None:
    images = np.array([encoded(picture()), encoded(picture(9, 9), "JPEG")], np.object_)
    async with stand(PHOTO) as running:
        assert (await asyncio.to_thread(infer_images, running.url, images)).as_numpy("only").shape == (2, 4)
        with pytest.raises(triton.InferenceServerException, match="not a JPEG or PNG"):
            await asyncio.to_thread(infer_images, running.url, np.array([b"hello"], np.object_))


async def test_images_of_a_request_may_differ_in_width() -> None:
    app = application("photo").model("only", input=(3, 8, 32), image=ImageInput(), sizes=(8, 32), outputs=((-1,),))
    images = np.array([encoded(picture(8, 8)), encoded(picture(24, 8), "JPEG")], np.object_)
    async with stand(app) as running:
        answers = await asyncio.to_thread(infer_images, running.url, images)
        assert answers.as_numpy("only").shape == (2, 32)
        metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    for size in (8, 32):
        assert f'partita_size_class_samples_total{{module="only-s{size}",session="default/photo"}} 1.0' in metrics


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"contents": [b"ab", b""]}, (b"ab", b""), id="contents"),
        pytest.param({"raw": b"\x02\0\0\0ab\0\0\0\0"}, (b"ab", b""), id="raw"),
        pytest.param({"contents": [b"ab"]}, "needs 2 elements", id="too few"),
        pytest.param({"raw": b"\x02\0\0\0ab"}, "are not 2 elements", id="too few in raw"),
        pytest.param({"raw": b"\xff\xff\xff\xffab\0\0\0\0"}, "are not 2 elements", id="longer than the data"),
        pytest.param({"contents": [b"ab", b""], "shape": [2, 2]}, "must be [n] images", id="another shape"),
    ],
)
def test_grpc_carries_them_as_bytes(fields: dict[str, Any], want: tuple[bytes, ...] | str) -> None:
    message = MESSAGES["ModelInferRequest"]()
    tensor = message.inputs.add(name="input", datatype="BYTES", shape=fields.get("shape", [2]))
    if "raw" in fields:
        message.raw_input_contents.append(fields["raw"])
    else:
        tensor.contents.bytes_contents.extend(fields["contents"])
    interface = Interface("photo", PHOTO.session.spec, {})
    if isinstance(want, str):
        with pytest.raises(RequestError, match=re.escape(want)):
            grpc_codec.decode_request(message, interface)
    else:
        request = grpc_codec.decode_request(message, interface)
        assert (request.images, request.samples) == ({"input": want}, 2)


async def test_sessions_without_images_refuse_them() -> None:
    app = application("photo").model("only", input=(3, 8, 8))
    async with stand(app) as running:
        answer = await post(running, encoded(picture()), **{"content-type": "image/png"})
        assert (answer.status_code, "declares `image`" in answer.json()["error"]) == (415, True)
        answer = await post(running, encoded(picture()), **{"content-type": "image/webp"})
        assert (answer.status_code, "image/jpeg" in answer.json()["error"]) == (415, True)


async def test_curl_sends_a_photograph_to_the_traffic_example(tmp_path: Path) -> None:
    (session,) = parse_manifests(EXAMPLE.read_text(), str(EXAMPLE)).sessions
    app = application("traffic").model("detector", input=(3, 224, 224), image=session.spec.modules[0].image)
    (tmp_path / "photo.jpg").write_bytes(encoded(picture(640, 480), "JPEG"))
    async with stand(app) as running:
        url = f"http://{running.url.split('/')[0]}/v2/models/traffic/infer"
        command = ("curl", "-sS", "--fail-with-body", "--data-binary", f"@{tmp_path / 'photo.jpg'}", url)
        curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await curl.communicate()
        assert curl.returncode == 0, output
        assert b'"model_name":"traffic"' in output
