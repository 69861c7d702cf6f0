"""`partita quality`: the score, the worst samples and the exit code of a check against a session over HTTP."""

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.docs.pages import pasted

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

KEY = "0123456789abcdef"


class Reader(BaseHTTPRequestHandler):
    """A session that answers clients with the key with the text that they send, in capital letters."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/default/ocr/v2/models/ocr/infer"
        outputs = [{**body["inputs"][0], "name": "text", "data": [body["inputs"][0]["data"][0].upper()]}]
        answer = json.dumps({"outputs": outputs}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def session_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Reader) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/default/ocr"
        server.shutdown()


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    file = tmp_path / "samples.jsonl"
    tensor = {"datatype": "BYTES", "shape": [1]}
    pairs = (("abcd", "ABCD"), ("efgh", "EFxx"), ("ijkl", "IJKx"))
    file.write_text(
        "\n".join(
            json.dumps(
                {
                    "inputs": [{"name": "picture", **tensor, "data": [sent]}],
                    "outputs": [{"name": "text", **tensor, "data": [expected]}],
                }
            )
            for sent, expected in pairs
        )
    )
    return file


def check(url: str, samples: Path, *options: str) -> Result:
    key = samples.with_name("key")
    key.write_text(KEY)
    arguments = ["--samples", str(samples), "--metric", "CharacterErrorRate", "--credentials", str(key)]
    return CliRunner().invoke(main, ["quality", url, *arguments, *options])


@pytest.mark.parametrize(
    ("limit", "code"),
    [pytest.param("0.25", ExitCode.OK, id="met"), pytest.param("0.24", ExitCode.MISSED, id="missed")],
)
def test_the_score_decides_the_exit_code(session_url: str, samples: Path, limit: str, code: ExitCode) -> None:
    done = check(session_url, samples, "--limit", limit, "--worst", "1", "-o", "json")

    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    assert found["score"] == pytest.approx(3 / 12)
    assert found["worst"] == [{"sample": 2, "score": 0.5, "problem": ""}]


def test_the_table_names_the_worst_samples(session_url: str, samples: Path) -> None:
    shown = check(session_url, samples, "--limit", "0.1").output

    assert "at most 0.1: missed" in shown
    assert shown.index("Sample 2") < shown.index("Sample 3") < shown.index("Sample 1")


def test_the_command_of_the_page(session_url: str, samples: Path) -> None:
    """With the credentials that this session needs."""
    (command,) = pasted("docs/tasks/quality.md")
    _, _, _, *options = shlex.split(command.replace("\\\n", "").replace("samples.jsonl", str(samples)))

    done = check(session_url, samples, *options)

    assert done.exit_code == ExitCode.OK, done.output
    assert done.output.count("Sample ") == 3


def test_without_credentials_no_sample_has_an_answer(session_url: str, samples: Path) -> None:
    arguments = ["--samples", str(samples), "--metric", "CharacterErrorRate", "--limit", "1"]

    done = CliRunner().invoke(main, ["quality", session_url, *arguments])

    assert done.exit_code == ExitCode.MISSED
    assert "answers 401" in done.output


def test_a_session_that_does_not_answer_is_a_failure(samples: Path) -> None:
    done = check("http://127.0.0.1:1/default/ocr", samples, "--limit", "1")

    assert done.exit_code == ExitCode.FAILED
    assert "is the session Ready?" in done.output
