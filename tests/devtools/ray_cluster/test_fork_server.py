"""The fork server: what its workers see, and that everything else runs as without it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_SECONDS

SERVER = """
import sys
from pathlib import Path
from partita_devtools.ray_cluster.fork_server import start_fork_server
packages = ["tabnanny:check", "pickletools", "no_such_package", "json:no_such_name"]
print(start_fork_server(Path(sys.argv[1]), packages), flush=True)
sys.stdin.read()
"""
WORKER = """
import json, os, sys
assert __name__ == "__main__"
what = {
    "arguments": sys.argv,
    "directory": os.getcwd(),
    "color": os.environ.get("COLOR"),
    "parent": os.getppid(),
    "path": sys.path,
    "preloaded": sorted({"numpy", "pickletools", "tabnanny", "ray", "partita_runtime"} & set(sys.modules)),
}
print(json.dumps(what))
if "fail" in sys.argv:
    sys.exit(3)
"""


@dataclass(frozen=True)
class Server:
    """A process that has started a fork server in a directory with the two scripts of Ray's workers."""

    process: subprocess.Popen[str]
    program: str
    directory: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the program with these arguments."""
        return subprocess.run(
            [self.program, *arguments],
            env={**os.environ, **environment},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def worker(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """What the worker's script says of itself."""
        run = self.run(str(self.directory / "default_worker.py"), *arguments, **environment)
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    def set_up_worker(self, context: dict[str, Any]) -> dict[str, Any]:
        """The same for a worker with a runtime environment."""
        run = self.run(
            str(self.directory / "setup_worker.py"),
            f"--serialized-runtime-env-context={json.dumps(context)}",
            "--language=PYTHON",
            str(self.directory / "default_worker.py"),
            "--node-id=7",
        )
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    def stop(self) -> None:
        """End the process that has started the fork server."""
        self.process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "default_worker.py").write_text(WORKER)
    (tmp_path / "setup_worker.py").write_text("import sys; print('{\"set_up_by_ray\": true}')")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    started = Server(process, process.stdout.readline().strip(), tmp_path)
    yield started
    started.stop()


def test_a_worker_has_the_packages_but_neither_ray_nor_partita(server: Server) -> None:
    assert server.worker()["preloaded"] == ["numpy", "pickletools", "tabnanny"]


def test_a_worker_has_the_arguments_directory_and_environment_of_its_caller(
    server: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    models = str(tmp_path_factory.mktemp("models"))

    worker = server.worker("--node-id=7", COLOR="red", PYTHONPATH=models)

    assert worker["arguments"] == [str(tmp_path / "default_worker.py"), "--node-id=7"]
    assert worker["directory"] == str(tmp_path)
    assert worker["color"] == "red"
    assert worker["path"][:2] == [str(tmp_path), models]


def test_workers_do_not_see_each_other(server: Server) -> None:
    server.worker(COLOR="red")

    assert server.worker()["color"] is None


def test_variables_of_a_runtime_environment_are_set(server: Server) -> None:
    worker = server.set_up_worker({"env_vars": {"COLOR": "blue"}, "py_executable": sys.executable, "java_jars": []})

    assert worker["color"] == "blue"
    assert worker["arguments"][1:] == ["--node-id=7"]
    assert worker["preloaded"]


@pytest.mark.parametrize(
    "context",
    [
        pytest.param({"py_executable": "/usr/bin/python3"}, id="another Python"),
        pytest.param({"command_prefix": ["cd", "/tmp", "&&"]}, id="a command before it"),
        pytest.param({"override_worker_entrypoint": "/worker.py"}, id="another script"),
        pytest.param({"env_vars": {"COLOR": "${HOME}"}}, id="a variable to expand"),
    ],
)
def test_other_runtime_environments_are_left_to_ray(server: Server, context: dict[str, Any]) -> None:
    assert server.set_up_worker(context) == {"set_up_by_ray": True}


def test_a_runtime_environment_may_be_that_of_a_module(server: Server, tmp_path: Path) -> None:
    (tmp_path / "some_server.py").write_text(WORKER)

    run = server.run(str(tmp_path / "setup_worker.py"), "-m", "some_server", "--language=PYTHON")

    assert json.loads(run.stdout)["preloaded"] == ["numpy", "pickletools", "tabnanny"]


def test_a_profiling_job_has_the_packages_too(server: Server, tmp_path: Path) -> None:
    (tmp_path / "partita_profiling.py").write_text(WORKER)

    run = server.run("-m", "partita_profiling", "fail")

    job = json.loads(run.stdout)
    assert job["arguments"][1:] == ["fail"]
    assert job["path"][0] == str(tmp_path)
    assert job["preloaded"] == ["numpy", "pickletools", "tabnanny"]
    assert run.returncode == 3


@pytest.mark.parametrize(
    ("sent", "want"), [(signal.SIGTERM, "ended"), (signal.SIGKILL, "")], ids=["terminated", "killed"]
)
def test_a_fork_ends_with_the_process_that_stands_for_it(
    server: Server, tmp_path: Path, sent: signal.Signals, want: str
) -> None:
    (tmp_path / "default_worker.py").write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'ended'), os._exit(4)))\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [server.program, str(tmp_path / "default_worker.py"), "--node-id=7"]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    fork = int(client.stdout.readline())
    assert fork != client.pid

    client.send_signal(sent)

    assert client.stdout.read().strip() == want, "the other end is closed once the fork has ended"
    assert client.wait() == (4 if want else -signal.SIGKILL)


def test_a_client_ends_like_its_fork(server: Server, tmp_path: Path) -> None:
    (tmp_path / "default_worker.py").write_text("import os; os.kill(os.getpid(), 9)")

    assert server.run(str(tmp_path / "default_worker.py"), "--node-id=7").returncode == -signal.SIGKILL


def test_other_programs_run_as_always(server: Server) -> None:
    run = server.run("-c", "import sys; print('numpy' in sys.modules); sys.exit(5)")

    assert (run.stdout, run.returncode) == ("False\n", 5)


def test_without_its_server_a_worker_runs_all_the_same(server: Server) -> None:
    forked_by = server.worker()["parent"]
    server.stop()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Path(f"/proc/{forked_by}").exists():
        assert time.monotonic() < deadline, "the server does not end with the process that has started it"
        time.sleep(0.05)

    assert server.worker()["preloaded"] == []
    assert server.run(str(server.directory / "default_worker.py"), "fail").returncode == 3


def test_a_client_that_ends_early_does_no_harm(server: Server) -> None:
    half = (
        "import socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "connection.connect(sys.argv[1])\n"
        "socket.send_fds(connection, [b'x'], [0, 1, 2])\n"
        "connection.sendall(b'{\"arguments\": ')\n"
    )
    subprocess.run([sys.executable, "-c", half, str(server.directory / "fork-server.sock")], check=True)
    nothing = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    subprocess.run([sys.executable, "-c", nothing, str(server.directory / "fork-server.sock")], check=True)

    assert server.worker()["preloaded"] == ["numpy", "pickletools", "tabnanny"]
