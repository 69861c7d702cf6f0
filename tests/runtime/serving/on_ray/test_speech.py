"""The example `speech` on a real Ray cluster: it finds speech where its package does, also in several streams at once.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.runtime.serving.on_ray.conftest import EXAMPLES
from tests.runtime.serving.on_ray.deployment import Deployment
from tests.runtime.serving.plans import application

from partita_api.manifests import parse_manifests

pytestmark = pytest.mark.ray

MANIFEST = EXAMPLES / "speech" / "manifests" / "session.yaml"
(DECLARED,) = parse_manifests(MANIFEST.read_text(), str(MANIFEST)).sessions
(DETECTOR,) = (module for module in DECLARED.spec.modules if module.model is not None)
SPEECH = replace(
    application("speech").model(
        "detector",
        inputs=DETECTOR.inputs,
        outputs=((32,), (2, 128)),
        output_names=("probabilities", "state"),
        entrypoint="speech.models:detector",
    ),
    functions=tuple(module for module in DECLARED.spec.modules if module.function is not None),
    edges=DECLARED.spec.edges,
    slo_ms=60_000,
)


@pytest.fixture(scope="module")
def speech(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(SPEECH)
    yield deployment
    deployment.remove(lambda name: ".speech." in name)


def test_speech_is_where_the_package_finds_it(speech: Deployment, tmp_path: Path) -> None:
    from speech.audio import recording, write_wav

    write_wav(tmp_path / "voices.wav", recording())
    write_wav(tmp_path / "others.wav", recording(2))
    (tmp_path / "text.wav").write_text("hello")
    program = [sys.executable, str(EXAMPLES / "speech" / "check.py"), "--url", f"http://{speech.url(SPEECH)}"]

    done = subprocess.run([*program, *map(str, tmp_path.iterdir())], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "text.wav is not a WAV file" in done.stderr
    *_, total = done.stdout.splitlines()
    assert total == "in total: 2 of 2 results are equal; 1 were left out"


def test_streams_that_are_sent_at_once_do_not_mix(speech: Deployment) -> None:
    from checks.client import ask
    from speech.audio import recording
    from speech.stream import Heard, listen

    def heard(seed: int) -> Heard:
        with httpx.Client() as client:
            return listen(lambda tensors: ask(client, f"http://{speech.url(SPEECH)}", tensors), recording(seed))

    with ThreadPoolExecutor(4) as threads:
        together = [*threads.map(heard, range(4))]

    for seed in range(4):
        alone = heard(seed)
        assert (alone.starts, alone.ends) == (together[seed].starts, together[seed].ends)
        np.testing.assert_allclose(alone.probabilities, together[seed].probabilities, atol=1e-4)
    assert len({tuple(each.probabilities) for each in together}) == 4


def test_a_state_that_no_answer_had_is_refused(speech: Deployment) -> None:
    from checks.client import NotAnsweredError, ask
    from speech.state import LENGTH
    from speech.stream import CHUNK

    tensors = {"chunk": np.zeros((1, CHUNK), np.int16), "state": np.full((1, LENGTH), 2.0)}

    with httpx.Client() as client, pytest.raises(NotAnsweredError, match="refuses it \\(400\\): state must be that of"):
        ask(client, f"http://{speech.url(SPEECH)}", tensors)
