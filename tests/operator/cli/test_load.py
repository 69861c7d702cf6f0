"""`partita load` waits for a session if it is told to."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

METADATA = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}'


class Starting(BaseHTTPRequestHandler):
    """A session that is not there for the first requests of its metadata, and answers every inference."""

    refusals = 0

    def do_GET(self) -> None:
        if Starting.refusals > 0:
            Starting.refusals -= 1
            self.send_error(404)
        else:
            self._answer(METADATA)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def session_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("partita_operator.cli.load.RETRY_S", 0.01)
    monkeypatch.setattr("partita_operator.cli.load.REPORT_EVERY_S", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/default/starting"
        server.shutdown()


def test_load_waits_for_the_session(session_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Starting, "refusals", 3)

    done = CliRunner().invoke(
        main, ["load", session_url, "--slo-ms", "10000", "--seconds", "1", "--rate", "20", "--wait", "300"]
    )

    assert done.exit_code == ExitCode.OK, done.output
    assert done.output.count("does not answer yet; waiting up to 300 s") == 3


def test_load_does_not_wait_unless_told(session_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Starting, "refusals", 1)

    done = CliRunner().invoke(main, ["load", session_url, "--slo-ms", "10000"])

    assert done.exit_code == ExitCode.FAILED
    assert "is the session Ready?" in done.output
