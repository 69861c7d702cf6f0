"""`partita load` and the session: it waits if it is told to, and says what is wrong with answers."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_runtime.serving.protocol.inference_client import encode_request

METADATA = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}'


class Starting(BaseHTTPRequestHandler):
    """A session that is not there for the first requests of its metadata, and answers every inference."""

    refusals = 0
    metadata = METADATA
    authorizations: ClassVar[list[str | None]] = []
    """What clients sent."""
    received: ClassVar[list[tuple[str, bytes]]] = []
    """Paths and bodies of inference requests."""
    lengths: ClassVar[list[str | None]] = []
    """How much of these is JSON."""

    def do_GET(self) -> None:
        self.authorizations.append(self.headers["Authorization"])
        if Starting.refusals > 0:
            Starting.refusals -= 1
            self.send_error(404)
        else:
            self._answer(Starting.metadata)

    def do_POST(self) -> None:
        self.authorizations.append(self.headers["Authorization"])
        self.lengths.append(self.headers["Inference-Header-Content-Length"])
        self.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
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


@pytest.mark.parametrize(
    ("credentials", "want"),
    [
        pytest.param("f3c1a0b9d2e84f6a\n", {"Bearer f3c1a0b9d2e84f6a"}, id="a key and a new line"),
        pytest.param(None, {None}, id="none"),
    ],
)
def test_load_sends_credentials(
    session_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, credentials: str | None, want: set[str | None]
) -> None:
    monkeypatch.setattr(Starting, "authorizations", [])
    options = ["--slo-ms", "10000", "--seconds", "1", "--rate", "5"]
    if credentials is not None:
        (tmp_path / "key").write_text(credentials)
        options += ["--credentials", str(tmp_path / "key")]
    done = CliRunner().invoke(main, ["load", session_url, *options])
    assert done.exit_code == ExitCode.OK, done.output
    assert set(Starting.authorizations) == want
    assert len(Starting.authorizations) > 1


def test_load_replays_a_log(session_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    received: list[tuple[str, bytes]] = []
    monkeypatch.setattr(Starting, "received", received)
    kind = {"specversion": "1.0", "type": "org.kubeflow.serving.inference.request"}
    bodies: list[dict[str, object]] = [{"instances": [1]}, {"inputs": []}, {"instances": [2]}]
    events = [{**kind, "time": f"2026-11-27T10:{k:02}:00Z", "data": body} for k, body in enumerate(bodies)]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(json.dumps, events)))

    options = ["--slo-ms", "10000", "--replay", str(log), "--speed", "120", "-o", "json"]
    done = CliRunner().invoke(main, ["load", session_url, *options])

    assert done.exit_code == ExitCode.OK, done.output
    assert [(path.rpartition("/v")[2], json.loads(body)) for path, body in received] == [
        ("1/models/starting:predict", bodies[0]),
        ("2/models/starting/infer", bodies[1]),
        ("1/models/starting:predict", bodies[2]),
    ]
    report = json.loads(done.stdout)
    assert (report["requests"], report["duration_s"]) == (3, 1.0)


def test_load_replays_binary_tensors_and_says_what_it_leaves_out(
    session_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received: list[tuple[str, bytes]] = []
    lengths: list[str | None] = []
    monkeypatch.setattr(Starting, "received", received)
    monkeypatch.setattr(Starting, "lengths", lengths)
    request = encode_request({"x": np.arange(4, dtype=np.float32)[None]})
    kind = {"specversion": "1.0", "type": "org.kubeflow.serving.inference.request", "time": "2026-11-27T10:00:00Z"}
    kind |= {"datacontenttype": request.headers["Content-Type"], "protocol": "v2"}
    length = request.headers["Inference-Header-Content-Length"]
    encoded = base64.b64encode(request.body).decode()
    events = [{**kind, "jsonheaderlength": length, "data_base64": encoded}, {**kind, "omittedbytes": "9000000"}]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(json.dumps, events)))

    done = CliRunner().invoke(main, ["load", session_url, "--slo-ms", "10000", "--replay", str(log)])

    assert done.exit_code == ExitCode.OK, done.output
    assert (received, lengths) == ([("/default/starting/v2/models/starting/infer", request.body)], [length])
    assert "1 requests are not sent: the log has them without their bodies" in done.output


def test_a_log_that_cannot_be_replayed(session_url: str, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    for content, want_message in ((b"{", "line 1 is not a CloudEvent"), (b"\xff", "utf-8"), (b"", "no requests")):
        log.write_bytes(content)
        done = CliRunner().invoke(main, ["load", session_url, "--slo-ms", "100", "--replay", str(log)])
        assert (done.exit_code, want_message in done.output) == (ExitCode.BAD_INPUT, True), done.output


def test_credentials_that_are_no_header_are_not_shown(session_url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("f3c1\r\nHost: x")
    options = ["--slo-ms", "100", "--credentials", str(tmp_path / "key")]
    done = CliRunner().invoke(main, ["load", session_url, *options])
    assert (done.exit_code, "visible ASCII" in done.output, "f3c1" in done.output) == (ExitCode.BAD_INPUT, True, False)


def test_random_numbers_are_no_texts(session_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Starting, "metadata", METADATA.replace(b"FP32", b"BYTES"))
    options = ["--slo-ms", "10000", "--seconds", "1", "--rate", "5"]
    done = CliRunner().invoke(main, ["load", session_url, *options])
    assert (done.exit_code, "give --payload" in done.output) == (ExitCode.BAD_INPUT, True), done.output
    np.savez(tmp_path / "texts.npz", x=np.array([["one", "two", "three", "four"]]))
    done = CliRunner().invoke(main, ["load", session_url, *options, "--payload", str(tmp_path / "texts.npz")])
    assert done.exit_code == ExitCode.OK, done.output


def test_load_does_not_wait_unless_told(session_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Starting, "refusals", 1)

    done = CliRunner().invoke(main, ["load", session_url, "--slo-ms", "10000"])

    assert done.exit_code == ExitCode.FAILED
    assert "is the session Ready?" in done.output


@pytest.mark.parametrize(
    "metadata",
    [
        b"hello",
        b"[]",
        b"{}",
        b'{"inputs": 1}',
        b'{"inputs": [1]}',
        b'{"inputs": [{"name": "x"}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP7", "shape": [1]}]}',
    ],
)
def test_a_url_that_describes_no_model(metadata: bytes, session_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Starting, "metadata", metadata)

    done = CliRunner().invoke(main, ["load", session_url, "--slo-ms", "100"])

    assert isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == ExitCode.FAILED
    assert "does not describe a model" in done.output


def test_a_port_that_speaks_another_protocol() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_greet_as_ssh, args=(server,), daemon=True).start()
        done = CliRunner().invoke(
            main, ["load", f"http://127.0.0.1:{server.getsockname()[1]}/default/shop", "--slo-ms", "100"]
        )

    assert isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == ExitCode.FAILED
    assert "does not describe a model" in done.output


def _greet_as_ssh(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
