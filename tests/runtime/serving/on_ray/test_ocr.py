"""The example `ocr` on a real Ray cluster: what it serves is what the package's own pipeline reads.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.on_ray.conftest import EXAMPLES
from tests.runtime.serving.on_ray.deployment import Deployment
from tests.runtime.serving.plans import application

from partita_api.manifests import parse_manifests

pytestmark = pytest.mark.ray

MANIFEST = EXAMPLES / "ocr" / "manifests" / "session.yaml"
(DECLARED,) = parse_manifests(MANIFEST.read_text(), str(MANIFEST)).sessions
LEFT_OUT = {"detector-tall", "detector-large"}
"""Two detectors would take most of the time of this test."""
OCR = replace(
    application("ocr")
    .model(
        "detector-wide",
        input=(3, 736, 1312),
        sizes=(992, 1312),
        padding="-4",
        outputs=((1, 736, -1),),
        entrypoint="ocr.models:detector",
    )
    .model("classifier", input=(3, 48, 192), outputs=((2,),), entrypoint="ocr.models:classifier")
    .model(
        "recognizer",
        input=(3, 48, 1280),
        sizes=(320, 1280),
        padding="-4",
        outputs=((-8,), (-8,)),
        entrypoint="ocr.models:recognizer",
    ),
    functions=tuple(module for module in DECLARED.spec.modules if module.function is not None),
    edges=tuple(edge for edge in DECLARED.spec.edges if LEFT_OUT.isdisjoint({edge.source, edge.target})),
    slo_ms=60_000,
    subcluster="all",
)


@pytest.fixture(scope="module")
def ocr(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(OCR)
    yield deployment
    deployment.remove(lambda name: ".ocr." in name)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures, and with files that are not pictures of text."""
    from ocr.pictures import LAYOUTS, rendered
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    for name in ("screen", "upside-down", "noisy", "empty"):
        rendered(LAYOUTS[name]).picture.save(folder / f"{name}.png")
    Image.new("RGB", (1, 1)).save(folder / "pixel.png")
    (folder / "text.png").write_text("This is not a picture.")
    return folder


def test_text_is_that_of_the_package(ocr: Deployment, pictures: Path) -> None:
    paths = [
        pictures / name
        for name in ("text.png", "pixel.png", *(f"{n}.png" for n in ("screen", "upside-down", "noisy", "empty")))
    ]
    program = [sys.executable, str(EXAMPLES / "ocr" / "check.py"), "--url", f"http://{ocr.url(OCR)}"]

    done = subprocess.run([*program, *map(str, paths)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "text.png\n" in done.stdout
    assert "this is not a picture; send a file such as PNG or JPEG" in done.stderr
    *_, total = done.stdout.splitlines()
    assert total.startswith("in total: 0 of ")
    assert total.endswith("(0.00%), in 5 of 6 pictures")


def test_a_client_of_triton_reads_lines_and_boxes(ocr: Deployment, pictures: Path) -> None:
    picture = triton.InferInput("input", [1, 1], "BYTES")
    picture.set_data_from_numpy(np.array([[(pictures / "screen.png").read_bytes()]], np.object_))

    with triton.InferenceServerClient(ocr.url(OCR)) as client:
        answer = client.infer("ocr", [picture])

    lines, boxes = answer.as_numpy("text.lines"), answer.as_numpy("text.boxes")
    assert lines.shape == (1, 6)
    assert boxes.shape == (1, 6, 4, 2)
    assert answer.as_numpy("text.scores").min() > 0.8
    tops = boxes[0, :, 0, 1]
    assert sorted(tops) == [*tops], "in reading order"
