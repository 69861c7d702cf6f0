"""`examples/speech/check.py` as a user runs it, against a server whose answers can be wrong."""

import importlib.util
import json
import threading
import wave
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner, Result
from speech.audio import RATE, read_wav, recording, write_wav
from speech.comparison import package_result
from speech.state import LENGTH
from speech.stream import CHUNK
from tests.examples.conftest import EXAMPLES

SAMPLES = recording()[: 2 * CHUNK]
"""Speech starts in the second of the two chunks."""
KINDS = {"starts": "INT64", "ends": "INT64", "probabilities": "FP32", "state": "FP64"}


class Listener(BaseHTTPRequestHandler):
    """Gives one answer after the other, then refuses."""

    answers: ClassVar[list[dict[str, list[Any]]]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, said = (200, self.outputs(self.answers.pop(0))) if self.answers else (400, {"error": "not this chunk"})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def outputs(self, answer: dict[str, list[Any]]) -> dict[str, Any]:
        return {
            "outputs": [
                {"name": f"speech.{name}", "datatype": KINDS[name], "shape": [1, len(data)], "data": data}
                for name, data in answer.items()
            ]
        }

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers for SAMPLES as the package does."""
    found = package_result(SAMPLES)
    Listener.answers = [
        {
            "starts": [sample for change, sample in found.changes if change == "start" and sample // CHUNK == number],
            "ends": [],
            "probabilities": [*found.probabilities[32 * number : 32 * number + 32]],
            "state": [0.0] * LENGTH,
        }
        for number in range(2)
    ]
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/default/speech"
        server.shutdown()


@pytest.fixture
def voice(tmp_path: Path) -> Path:
    write_wav(tmp_path / "voice.wav", SAMPLES)
    return tmp_path / "voice.wav"


def check(*arguments: str | Path) -> Result:
    spec = importlib.util.spec_from_file_location("speech_check", EXAMPLES / "speech" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return CliRunner().invoke(program.check, [str(argument) for argument in arguments])


def test_a_file_has_the_samples_that_were_written(voice: Path) -> None:
    np.testing.assert_array_equal(read_wav(voice), SAMPLES)


def test_the_same_speech(url: str, voice: Path) -> None:
    done = check("--url", url, voice)

    assert (done.exit_code, done.stderr) == (0, "")
    assert "served   speech at 1.0" in done.stdout
    assert "in the stream: start 1.0" in done.stdout
    assert "equal; probabilities differ by at most 0.000000" in done.stdout
    assert "in total: 1 of 1 results are equal; 0 were left out" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("starts", [17_000], id="another start"),
        pytest.param("ends", [17_500], id="an end"),
        pytest.param("probabilities", [0.002] * 32, id="other probabilities"),
    ],
)
def test_other_speech(url: str, voice: Path, name: str, value: list[float]) -> None:
    Listener.answers[1][name] = value

    done = check("--url", url, voice)

    assert done.exit_code == 1
    assert "\n  different; " in done.stdout
    assert "0 of 1 results are equal" in done.stdout


def test_others_go_on_after_what_is_no_recording(url: str, voice: Path, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("hello")
    write_wav(tmp_path / "empty.wav", SAMPLES[:0])
    with wave.open(str(tmp_path / "stereo.wav"), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))

    done = check("--url", url, *(tmp_path / f"{name}.wav" for name in ("text", "empty", "stereo", "missing")), voice)

    assert done.exit_code == 0
    for said in ("is not a WAV file", "has no sound", "is not of 16 kHz, one channel and 16 bits", "No such file"):
        assert said in done.stderr
    assert "1 of 1 results are equal; 4 were left out" in done.stdout


def test_no_session(voice: Path, url: str) -> None:
    Listener.answers = []

    refused, nobody = check("--url", url, voice), check("--url", "http://127.0.0.1:9/default/speech", voice)

    assert refused.exit_code == nobody.exit_code == 2
    assert "the session refuses it (400): not this chunk" in refused.stderr
    assert "does not answer" in nobody.stderr
    assert "no recording could be compared" in nobody.stderr


def test_help() -> None:
    assert "a probability differs by more than 0.001" in " ".join(check("--help").stdout.split())
