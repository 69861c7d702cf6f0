"""Hostile clients of a session: what they send costs the frontend little, and they get a clear error."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import ExifTags, Image
from tests.runtime.serving.in_process.stand import WAYS, Stand, on_its_own_port, post, stand
from tests.runtime.serving.ingress.raw_http import connected, exchanged
from tests.runtime.serving.ingress.raw_http import post as request
from tests.runtime.serving.plans import application

from partita_api.session.module import ImageInput
from partita_runtime.execution.executor import Array
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, SERVICE
from partita_runtime.serving.protocol.images import MAX_IMAGE_BYTES, image_tensor
from partita_runtime.serving.protocol.oip import MAX_JSON_BYTES
from partita_runtime.serving.session import image_decoder
from partita_runtime.serving.session.settings import FrontendSettings

APP = application("plain").model("only")


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(APP, way=request.param) as running:
        yield running


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails if an error was logged."""
    yield
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def infer(data: str = "[0,1,2,3]", shape: str = "[1,2,2]", parameters: str = "", **fields: str) -> bytes:
    """A request as text: its numbers may have any number of digits."""
    tensor = {"name": "input", "datatype": "FP32", **fields}
    more = f',"parameters":{{{parameters}}}' if parameters else ""
    return f'{{"inputs":[{json.dumps(tensor)[:-1]},"shape":{shape},"data":{data}}}]{more}}}'.encode()


DIGITS = "9" * 4000
TOO_MANY_DIGITS = "9" * 5000
"""More than Python converts."""


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize(
    ("sent", "want_status", "want_message"),
    [
        pytest.param(request(infer(f"[0,1,2,{DIGITS}]")), 400, "not an array of FP32", id="an element of 4000 digits"),
        pytest.param(request(infer(f"[0,1,2.5,{DIGITS}]")), 400, "not an array of FP32", id="... beside a fraction"),
        pytest.param(request(infer(f"[0,1,2,{TOO_MANY_DIGITS}]")), 400, "not an inference", id="... of 5000 digits"),
        pytest.param(request(infer("[0,1,2,1e999]")), 400, "not an array of FP32", id="1e999"),
        pytest.param(request(infer("[0,1,2,1e39]")), 400, "not an array of FP32", id="too large for FP32"),
        pytest.param(request(infer(f"[0,1,2,1e{DIGITS}]")), 400, "not an", id="an exponent of 4000 digits"),
        pytest.param(request(infer("[0,1,2,-Infinity]")), 400, "not an array of FP32", id="infinity"),
        pytest.param(request(infer("[0,1,2,NaN]")), 400, "not a number (NaN)", id="NaN"),
        pytest.param(request(infer("[0,1,2,true]")), 400, "not an array of FP32", id="a boolean"),
        pytest.param(request(infer(shape=f"[1,2,{DIGITS}]")), 400, "less than", id="a dimension of 4000 digits"),
        pytest.param(request(infer(parameters=f'"timeout":{DIGITS}')), 400, "'timeout' must be", id="a timeout"),
        pytest.param(request(infer(parameters=f'"timeout":"{DIGITS}"')), 400, "'timeout' must be", id="... as text"),
        pytest.param(request(infer(parameters='"timeout":1e999')), 400, "'timeout' must be", id="... without end"),
        pytest.param(request(infer(parameters=f'"priority":{2**63}')), 400, "'priority' must be", id="a priority"),
        pytest.param(
            request(infer(), {"Inference-Header-Content-Length": TOO_MANY_DIGITS}), 400, "not a length", id="a header"
        ),
        pytest.param(request(infer(name="x" * 1_000_000)), 400, "the inputs must be 'input'", id="a long name"),
        pytest.param(request(infer(datatype="x" * 1_000_000)), 400, "must be FP32", id="a long element type"),
        pytest.param(request(infer(), path=f"/v2/models/{'x' * 50_000}/infer"), 404, "no model", id="a long path"),
        pytest.param(request(infer("[" + "0," * (MAX_JSON_BYTES // 2) + "0]")), 413, "as binary", id="much JSON"),
    ],
)
async def test_text_that_costs_more_than_it_has_bytes(
    plain: Stand, sent: bytes, want_status: int, want_message: str
) -> None:
    status, body = await exchanged(plain, sent)
    message = json.loads(body)["error"]
    assert (status, want_message in message) == (want_status, True), message
    assert len(message) < 1100
    assert (await post(plain))[0] == 200


@pytest.mark.usefixtures("no_errors")
async def test_a_length_of_thousands_of_digits() -> None:
    """Its value is small, so parsers of HTTP accept it."""
    async with stand(APP, way=on_its_own_port) as running, connected(running) as (reader, writer):
        writer.write(request(infer(), {"Content-Length": "0" * 5000 + "2"}) + request(infer()))
        answers = await asyncio.wait_for(reader.read(-1), 20)
        assert (answers.count(b"HTTP/1.1 "), b" 400 " in answers) == (1, True), answers
        assert (await post(running))[0] == 200


async def test_a_long_text_among_a_tensors_elements_takes_no_memory_for_each() -> None:
    """An array of texts would have the longest text's size for each of its elements."""
    async with stand(APP) as running:
        texts = json.dumps(["x" * 100_000] + ["x"] * 1000)
        tracemalloc.start()
        try:
            answer = await running.client.post("/v2/models/plain/infer", content=infer(texts))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (answer.status_code, "not an array of FP32" in answer.text) == (400, True)
        assert peak < 50_000_000


def message(**fields: Any) -> Any:
    made = MESSAGES["ModelInferRequest"](model_name="plain", **fields)
    made.inputs.add(name="input", datatype="FP32", shape=[1, 2, 2])
    return made


ZEROS = np.zeros(4, np.float32).tobytes()


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize(
    ("sent", "want_code"),
    [
        pytest.param(message(raw_input_contents=[ZEROS]).SerializeToString(), "OK", id="a small message"),
        pytest.param(
            message(raw_input_contents=[bytes(2 * MAX_JSON_BYTES)]).SerializeToString(),
            "INVALID_ARGUMENT",
            id="a large tensor",
        ),
        pytest.param(b"\x2a\x00" * MAX_JSON_BYTES, "RESOURCE_EXHAUSTED", id="millions of inputs"),
        pytest.param(
            message(id="x" * 2 * MAX_JSON_BYTES, raw_input_contents=[ZEROS]).SerializeToString(),
            "RESOURCE_EXHAUSTED",
            id="a long id",
        ),
        pytest.param(b"\x3a\xff\xff\xff\xff\x0f" * MAX_JSON_BYTES, "INVALID_ARGUMENT", id="a tensor without end"),
        pytest.param(b"\xff" * 2 * MAX_JSON_BYTES, "RESOURCE_EXHAUSTED", id="no message"),
    ],
)
async def test_grpc_messages_that_take_more_memory_than_bytes(sent: bytes, want_code: str) -> None:
    async with stand(APP) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await running.until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with grpc.aio.insecure_channel(str(running.session.addresses.grpc)) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(sent)
            assert (await call.code()).name == want_code
        await endpoint.close()


PHOTO = application("photo").model("only", input=(3, 8, 8), outputs=((4,),), image=ImageInput())
PHOTO_PATH = "/v2/models/photo/infer"
MEASURED = """
import io, resource, sys
from PIL import Image
from partita_api.session.module import ImageInput, TensorSpec
from partita_runtime.serving.protocol.images import image_tensor
from partita_runtime.serving.protocol.inference import RequestError

def decode(data):
    try:
        image_tensor(data, TensorSpec(shape=(3, 8, 8)), ImageInput())
    except RequestError as error:
        return str(error)
    return "decoded"

small = io.BytesIO()
Image.new("RGB", (8, 8)).save(small, "PNG")
decode(small.getvalue())  # Pillow has loaded its plugins
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = decode(sys.stdin.buffer.read())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, result)
"""


def picture(mode: str, width: int, height: int, format: str = "PNG", **options: Any) -> bytes:
    """An image of one colour: its file is small."""
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, format, **options)
    return file.getvalue()


def exif(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[ExifTags.Base.Orientation] = orientation
    return made


def one_colour_first() -> bytes:
    """A JPEG that is not progressive, and yet is kept whole: it says that its first scan has one of three colours."""
    plain = picture("RGB", 6000, 6000, "JPEG")
    scan = plain.index(b"\xff\xda")
    return plain[: scan + 4] + b"\x01" + plain[scan + 5 : scan + 7] + plain[scan + 11 :]


@pytest.mark.parametrize(
    ("image", "want"),
    [
        pytest.param(lambda: picture("RGB", 7000, 7000), "takes", id="a PNG of 143 kB with 49 million pixels"),
        pytest.param(lambda: picture("RGB", 4000, 4000), "decoded", id="a large PNG"),
        pytest.param(lambda: picture("RGB", 4000, 4000, exif=exif(6)), "decoded", id="a large PNG to turn"),
        pytest.param(lambda: picture("RGBA", 4000, 4000), "decoded", id="a large PNG with transparency"),
        pytest.param(lambda: picture("1", 5000, 5000), "decoded", id="a large PNG of one bit a pixel"),
        pytest.param(lambda: picture("P", 5000, 5000), "decoded", id="a large PNG with a palette"),
        pytest.param(lambda: picture("1", 1, 33_000_000), "in a row or a column", id="one column"),
        pytest.param(lambda: picture("1", 33_000_000, 1), "in a row or a column", id="one row"),
        pytest.param(lambda: picture("RGB", 700, 65_000, "JPEG"), "decoded", id="a narrow JPEG"),
        pytest.param(lambda: picture("RGB", 7000, 7000, "JPEG", exif=exif(6)), "decoded", id="a large JPEG to turn"),
        pytest.param(lambda: picture("CMYK", 7000, 7000, "JPEG"), "decoded", id="a large JPEG of four colours"),
        pytest.param(lambda: picture("RGB", 7000, 7000, "JPEG", progressive=True), "takes", id="a progressive JPEG"),
        pytest.param(
            lambda: picture("RGB", 4000, 5000, "JPEG", progressive=True, subsampling=0), "decoded", id="... in bounds"
        ),
        pytest.param(one_colour_first, "takes", id="a JPEG with one colour first"),
    ],
)
def test_small_files_with_many_pixels(image: Callable[[], bytes], want: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], input=image(), capture_output=True, check=True)
    peak, _, result = done.stdout.decode().partition(" ")
    assert want in result
    assert int(peak) < (MAX_IMAGE_BYTES * 1.1 if want == "decoded" else 20_000_000), result


async def test_images_are_decoded_in_few_threads_that_requests_share(monkeypatch: pytest.MonkeyPatch) -> None:
    running_now, most, opened = 0, 0, threading.Event()
    lock = threading.Lock()

    def slowly(*args: Any, **kwargs: Any) -> Array:
        nonlocal running_now, most
        with lock:
            running_now += 1
            most = max(most, running_now)
        opened.wait()
        with lock:
            running_now -= 1
        return image_tensor(*args, **kwargs)

    monkeypatch.setattr(image_decoder, "image_tensor", slowly)
    settings = FrontendSettings(function_processes=1, image_threads=2)
    async with stand(PHOTO, settings) as running:
        many = asyncio.create_task(running.client.post(PHOTO_PATH, **photos(64)))
        await running.until(lambda: most == 2, "two images are being decoded")
        one = asyncio.create_task(running.client.post(PHOTO_PATH, **photos(1)))
        await running.until(lambda: running.session.bodies.taken > 64 * len(PNG), "both requests wait")
        order: list[str] = []
        for name, task in (("many", many), ("one", one)):
            task.add_done_callback(lambda _, name=name: order.append(name))
        opened.set()
        assert [(await answer).status_code for answer in (many, one)] == [200, 200]
        assert (most, order) == (2, ["one", "many"])
        assert running.session.bodies.taken == 0


async def test_images_that_wait_are_bounded_in_bytes_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()
    monkeypatch.setattr(image_decoder, "image_tensor", lambda *_, **__: opened.wait() and np.zeros((3, 8, 8)))
    most = 15 * len(PNG)
    settings = FrontendSettings(function_processes=1, max_request_bytes=most, max_reading_bytes=most)
    async with stand(PHOTO.slo(1000), settings) as running:
        try:
            first = asyncio.create_task(running.client.post(PHOTO_PATH, **photos(8)))
            await running.until(lambda: running.session.bodies.taken, "its images wait")
            beyond = await running.client.post(PHOTO_PATH, **photos(8))
            assert (beyond.status_code, beyond.headers["retry-after"]) == (503, "1")
            late = await first
            assert (late.status_code, "before its deadline" in late.json()["error"]) == (504, True)
            assert running.session.meter.outcomes == {"too_late": 8}
            assert running.session.bodies.taken == 0
        finally:
            opened.set()


PNG = picture("RGB", 8, 8)


def photos(count: int) -> dict[str, Any]:
    """A request with images, for httpx."""
    data = (len(PNG).to_bytes(4, "little") + PNG) * count
    tensor = {"name": "input", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": len(data)}}
    text = json.dumps({"inputs": [tensor]}).encode()
    return {"content": text + data, "headers": {"Inference-Header-Content-Length": str(len(text))}}
