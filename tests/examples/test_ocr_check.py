"""`examples/ocr/check.py` as a user runs it, against a server that always reads the same two words."""

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ocr.pictures import Layout, rendered
from PIL import Image
from tests.examples.conftest import EXAMPLES

NOTE = Layout(420, 120, lines=1, words=2, size=32)
SAID = " ".join(rendered(NOTE).lines)


class Reader(BaseHTTPRequestHandler):
    """Answers every picture with the words of NOTE, and refuses what is not PNG."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status, answer = (200, self.read()) if b"PNG" in body else (400, {"error": "this is not a picture"})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def read(self) -> dict[str, object]:
        lines = {"name": "text.lines", "datatype": "BYTES", "shape": [1, 1], "data": [SAID]}
        left_out = {"name": "text.left_out", "datatype": "INT64", "shape": [1], "data": [0]}
        return {"outputs": [lines, left_out]}

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Reader) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/default/ocr"
        server.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "note.png").write_bytes(rendered(NOTE).png)
    Image.new("RGB", (60, 40), "white").save(folder / "blank.png")
    (folder / "text.txt").write_text("hello")
    return folder


def check(*arguments: str | Path) -> Result:
    spec = importlib.util.spec_from_file_location("ocr_check", EXAMPLES / "ocr" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return CliRunner().invoke(program.check, [str(argument) for argument in arguments])


def test_the_same_text(url: str, folder: Path) -> None:
    done = check("--url", url, folder / "note.png")

    assert (done.exit_code, done.stderr) == (0, "")
    assert f"served   {SAID}\n  package  {SAID}\n  0 of {len(SAID)} characters differ (0.00%)" in done.stdout
    assert "in total: 0 of" in done.stdout


def test_another_text(url: str, folder: Path) -> None:
    done = check("--url", url, folder / "note.png", folder / "blank.png")

    assert done.exit_code == 1
    assert "package  (no text)" in done.stdout
    assert f"in total: {len(SAID)} of {len(SAID)} characters differ (100.00%), in 2 of 2 pictures" in done.stdout


def test_others_go_on_after_what_is_not_a_picture(url: str, folder: Path) -> None:
    done = check("--url", url, folder / "text.txt", folder / "missing.png", folder / "note.png")

    assert done.exit_code == 0
    assert "not compared: the session refuses it (400): this is not a picture" in done.stderr
    assert "No such file" in done.stderr
    assert "in 1 of 3 pictures" in done.stdout


@pytest.mark.parametrize(
    ("address", "says"),
    [
        pytest.param("http://127.0.0.1:9/default/ocr", "does not answer", id="nobody there"),
        pytest.param("nonsense", "does not answer", id="no URL"),
    ],
)
def test_no_session(address: str, says: str, folder: Path) -> None:
    done = check("--url", address, folder / "note.png")

    assert done.exit_code == 2
    assert says in done.stderr
    assert "no picture could be compared" in done.stderr


def test_help_and_no_picture() -> None:
    assert "Exit code 1 if more than 1 % of all characters differ" in " ".join(check("--help").stdout.split())
    assert check().exit_code == 2
