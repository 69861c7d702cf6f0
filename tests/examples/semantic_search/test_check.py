"""`examples/semantic_search/check.py` as a user runs it, against a server whose answers can be wrong."""

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result
from semantic_search.comparison import reference_result
from tests.examples.conftest import EXAMPLES

TEXT = "why do stars flicker"


class Finder(BaseHTTPRequestHandler):
    """Answers TEXT, and refuses other texts."""

    answer: ClassVar[dict[str, list[float]]]

    def do_POST(self) -> None:
        knows = TEXT.encode() in self.rfile.read(int(self.headers["content-length"]))
        outputs = [
            {"name": f"ranking.{name}", "datatype": kind, "shape": [1, len(data)], "data": data}
            for (name, data), kind in zip(self.answer.items(), ("INT64", "FP32", "FP32"), strict=True)
        ]
        self.send_response(200 if knows else 400)
        self.end_headers()
        self.wfile.write(json.dumps({"outputs": outputs} if knows else {"error": "there is no word"}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers as transformers does."""
    result = reference_result(TEXT, 4)
    Finder.answer = {"numbers": [*result.numbers], "scores": [*result.scores], "vector": result.vector.tolist()}
    with ThreadingHTTPServer(("127.0.0.1", 0), Finder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/default/semantic-search"
        server.shutdown()


def check(*arguments: str | Path) -> Result:
    spec = importlib.util.spec_from_file_location("search_check", EXAMPLES / "semantic_search" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return CliRunner().invoke(program.check, [str(argument) for argument in arguments])


def test_the_same_passages(url: str) -> None:
    done = check("--url", url, TEXT)

    assert (done.exit_code, done.stderr) == (0, "")
    assert " Stars twinkle because their light is bent" in done.stdout
    assert "1 of 1 results are equal, the least cosine is 1.000000; 0 texts were left out" in done.stdout


def test_another_order(url: str) -> None:
    Finder.answer["numbers"].reverse()

    done = check("--url", url, TEXT)

    assert done.exit_code == 1
    assert "served [" in done.stdout
    assert "0 of 1 results are equal" in done.stdout


def test_another_vector(url: str) -> None:
    Finder.answer["vector"][:20] = [0.0] * 20

    done = check("--url", url, TEXT)

    assert done.exit_code == 1
    assert "cosine of the vectors: 0.9" in done.stdout


def test_others_go_on_after_a_text_that_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"\n{TEXT}\n")
    (tmp_path / "binary").write_bytes(b"\xff")

    done = check("--url", url, "?", "@missing", f"@{tmp_path / 'binary'}", f"@{tmp_path / 'text'}")

    assert done.exit_code == 0
    assert "not compared: the session refuses it (400): there is no word" in done.stderr
    assert "No such file" in done.stderr
    assert "1 of 1 results are equal" in done.stdout
    assert "3 texts were left out" in done.stdout


def test_another_session(url: str) -> None:
    del Finder.answer["vector"]
    Finder.answer["other"] = [1.0]

    done = check("--url", url, TEXT)

    assert done.exit_code == 2
    assert "has no ranking.vector, so this is not a session of this example" in done.stderr


def test_no_session() -> None:
    done = check("--url", "http://127.0.0.1:9/default/semantic-search", TEXT)

    assert done.exit_code == 2
    assert "does not answer" in done.stderr
    assert "no text could be compared" in done.stderr


def test_help() -> None:
    assert "the cosine of the vectors is not above 0.999" in " ".join(check("--help").stdout.split())
