"""A demonstration without a cluster, and one whose programs end in the middle."""

import os
import shlex
import signal
from pathlib import Path

import pytest
from tests.devtools.conftest import process_of
from tests.devtools.test_environment import ray_that_never_ran

from partita_devtools.demo.config import DemoConfig
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.run import run_demo
from partita_devtools.environment import DevEnvironment, load_dev_environment
from partita_devtools.errors import DevError

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traffic-emulated"


def test_a_cluster_that_does_not_exist_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    environment = DevEnvironment(tmp_path, tmp_path / "none", None, ray_that_never_ran(tmp_path))
    with pytest.raises(DemoError) as raised:
        run_demo(environment, DemoConfig(example=EXAMPLE), print)
    status = str(raised.value).partition("runs: ")[2]
    assert shlex.split(status) == ["partita", "dev", "status", "--state-dir", str(tmp_path)]


@pytest.mark.parametrize(
    ("ends", "log"), [("Ray node head", "ray-head.log"), ("the operator", "operator.log"), ("the API server", None)]
)
def test_the_wait_ends_when_a_program_has_ended(ends: str, log: str | None, running: Path) -> None:
    """Nobody serves the session, so the demonstration waits."""
    environment = load_dev_environment(running)
    assert environment is not None
    assert environment.api_server is not None
    (api_server,) = environment.api_server.running_processes()
    words = []
    if log is not None:
        (running / "logs" / log).write_text("The last words.\n")
        words = ["  The last words."]
    with process_of(running, "ray") as ray, process_of(running, "operator") as operator:
        pids = {"Ray node head": ray.pid, "the operator": operator.pid, "the API server": api_server.pid}

        def report(line: str) -> None:
            if line.startswith("applying"):
                os.kill(pids[ends], signal.SIGKILL)

        with pytest.raises(DevError) as raised:
            run_demo(environment, DemoConfig(example=EXAMPLE, command="partita demo --seconds 8"), report)
    first, *end, again = str(raised.value).splitlines()
    assert first.startswith(f"{ends} ended; the end of its log {running}/logs/")
    assert end == words
    assert again == "To start again: partita demo --seconds 8"
