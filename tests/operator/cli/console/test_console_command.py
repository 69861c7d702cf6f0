"""`partita console` as a command: its address, what it says, and how it ends."""

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.docs.pages import blocks
from tests.operator.cli.test_interrupts import interrupt, started
from tests.operator.kube.kubeconfigs import kubeconfig
from tests.patience import PATIENCE_SECONDS

from partita_operator.cli.cluster.console import console as console_command
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another program listens, on all addresses."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        yield int(listener.getsockname()[1])


def console(cluster: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["console", "--kubeconfig", str(cluster), *arguments])


def test_a_taken_port_is_bad_input(taken_port: int, tmp_path: Path) -> None:
    result = console(kubeconfig(tmp_path, {}), "--port", str(taken_port))

    assert result.exit_code == ExitCode.BAD_INPUT
    assert f"127.0.0.1, port {taken_port}, cannot be listened on" in result.output
    assert "Give another --port" in result.output
    assert "Everybody" not in result.output


def test_another_address_says_what_that_means(taken_port: int, tmp_path: Path) -> None:
    result = console(kubeconfig(tmp_path, {}), "--host", "0.0.0.0", "--port", str(taken_port))

    assert "Everybody who reaches 0.0.0.0 sees what your kubeconfig may read" in result.output


def test_it_serves_without_a_cluster_until_ctrl_c(tmp_path: Path) -> None:
    with started("console", "--kubeconfig", str(kubeconfig(tmp_path, {})), "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        assert interrupt(process)[-1] == "Interrupted."
        assert process.returncode == ExitCode.INTERRUPTED


def test_sigterm_ends_it_as_kubernetes_ends_pods(tmp_path: Path) -> None:
    with started("console", "--kubeconfig", str(kubeconfig(tmp_path, {})), "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == ExitCode.OK
        assert "Traceback" not in errors


def test_the_page_proposes_options_that_exist() -> None:
    """Its commands run until Ctrl-C, so that no test pastes them."""
    page = [block.text for block in blocks("docs/tasks/console.md") if block.language == "sh"]
    commands = re.findall(r"partita console([^#\n]*)", "\n".join(page))
    assert len(commands) >= 4
    for options in commands:
        assert console_command.make_context("console", shlex.split(options)).params["port"] == 8765, options
