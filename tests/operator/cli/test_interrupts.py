"""Ctrl-C, from the start of a command: exit code 130, one line, no traceback, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from tests.builders import pool, profile, session
from tests.patience import PATIENCE_SECONDS, eventually

from partita_operator.cli.exit_codes import ExitCode

SLOW_MODEL = """
import time
from pathlib import Path

def model(**_):
    (Path(__file__).parent / "loading").touch()
    time.sleep(3600)
"""

SLOW_PACKAGE = """
import time
from pathlib import Path

(Path(__file__).parent / "importing").touch()
time.sleep(3600)
"""


class Endless(BaseHTTPRequestHandler):
    """A session that describes itself and never answers a request."""

    requested = threading.Event()

    def do_GET(self) -> None:
        body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        Endless.requested.set()
        time.sleep(PATIENCE_SECONDS)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def endless_session() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/default/endless"
        finally:
            server.shutdown()


MODULE = (sys.executable, "-m", "partita_operator")
SCRIPT = (str(Path(sys.executable).with_name("partita")),)


@contextmanager
def started(
    *arguments: str, command: Sequence[str] = MODULE, python_path: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command of `partita` in a process group of its own, with its first folder of packages."""
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        # A shell starts background jobs with SIGINT ignored, and a process inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env=os.environ | ({"PYTHONPATH": str(python_path)} if python_path else {}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[str]) -> list[str]:
    """Ctrl-C; the lines on stderr after progress."""
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == ExitCode.INTERRUPTED, errors
    assert "Traceback" not in errors + output
    return errors.splitlines()


def write_manifests(directory: Path, entrypoint: str) -> Path:
    path = directory / "all.yaml"
    described = session("slow").slo(200).rate(50).model("detector").build()
    (module,) = described.spec.modules
    assert module.model is not None
    spec = described.spec.model_copy(
        update={
            "modules": (
                module.model_copy(update={"model": module.model.model_copy(update={"entrypoint": entrypoint})}),
            )
        }
    )
    documents = (pool("fast").gpus(4).build(), described.model_copy(update={"spec": spec}))
    path.write_text(yaml.safe_dump_all(d.model_dump(mode="json", by_alias=True, exclude={"status"}) for d in documents))
    return path


@pytest.mark.parametrize("command", [pytest.param(MODULE, id="module"), pytest.param(SCRIPT, id="script")])
@pytest.mark.parametrize("package", ["click", "pydantic"])
def test_the_imports_of_a_command_end_at_once(tmp_path: Path, command: Sequence[str], package: str) -> None:
    (tmp_path / f"{package}.py").write_text(SLOW_PACKAGE)
    with started("plan", command=command, python_path=tmp_path) as run:
        eventually((tmp_path / "importing").exists)
        lines = interrupt(run)
    assert lines == ["Interrupted."]


def test_load_ends_at_once(tmp_path: Path) -> None:
    csv = tmp_path / "requests.csv"
    with (
        endless_session() as url,
        started("load", url, "--slo-ms", "100", "--seconds", "600", "--csv", str(csv)) as run,
    ):
        assert Endless.requested.wait(PATIENCE_SECONDS)
        lines = interrupt(run)
    assert lines[-1] == "Interrupted."
    assert not csv.exists()


def test_a_simulation_ends_at_once(tmp_path: Path) -> None:
    manifests = write_manifests(tmp_path, "tests.models:detector")
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    measured = profile("detector").on("fast").linear(1000, 5000).build()
    (profiles / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    executions = tmp_path / "executions.csv"
    arguments = ("--profiles", str(profiles), "--seconds", "100000", "--executions", str(executions))
    with started("simulate", str(manifests), *arguments) as run:
        # After its start, which takes about 2 s of CPU time.
        eventually(lambda: _cpu_seconds(run.pid) > 5)
        lines = interrupt(run)
    assert lines[-1] == "Interrupted."
    assert not executions.exists()


def test_the_profiler_process_ends_with_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the profiler needs the extra models")
    (tmp_path / "slow_model.py").write_text(SLOW_MODEL)
    manifests, out = write_manifests(tmp_path, "slow_model:model"), tmp_path / "out"
    with started("profile", str(manifests), "--out", str(out), "--python-path", str(tmp_path)) as run:
        eventually((tmp_path / "loading").exists)
        children = _children(run.pid)
        assert children
        lines = interrupt(run)
    assert lines[-1] == "Interrupted."
    eventually(lambda: not any(map(_runs, children)))
    assert list(out.iterdir()) == []


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
