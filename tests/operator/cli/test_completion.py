"""Shell completion: the scripts, and what they complete."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from partita_operator.cli.cluster.name_completion import COMPLETION_SECONDS, pool_names, session_names
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.cli.completion import PROGRAM, SHELLS, VARIABLE
from partita_operator.cli.main import SUBCOMMANDS, main

NAMES = {"inferencesessions": ("traffic", "trains", "vision"), "gpupools": ("fast", "slow")}


class ApiServer(BaseHTTPRequestHandler):
    """Lists sessions and pools."""

    def do_GET(self) -> None:
        plural = self.path.partition("?")[0].rpartition("/")[2]
        items = [{"metadata": {"name": name}} for name in NAMES[plural]]
        body = json.dumps({"kind": "List", "metadata": {}, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def kubeconfig_of(server: str, directory: Path) -> Path:
    path = directory / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return path


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kubeconfig_of(f"http://127.0.0.1:{server.server_address[1]}", tmp_path)
        server.shutdown()


def completed(*words: str) -> list[str]:
    """What the last word is completed to."""
    shell = ShellComplete(main, {}, PROGRAM, VARIABLE)
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_partita(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert f"{VARIABLE}={shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("shell", "options", "script"),
    [
        pytest.param(
            "bash",
            ("--norc", "-c"),
            f'eval "$({PROGRAM} completion bash)"; COMP_WORDS=({PROGRAM} doc); COMP_CWORD=1; '
            f'_{PROGRAM}_completion {PROGRAM}; echo "completed: ${{COMPREPLY[*]}}"',
            id="bash",
        ),
        pytest.param(
            "zsh",
            ("-f", "-c"),
            # The function that shows the completions (-V unsorted ARRAY) is replaced; zsh sets words and CURRENT.
            f'autoload -U compinit; compinit -u -D; eval "$({PROGRAM} completion zsh)"; '
            '_describe() { echo "completed: ${${(P)3}[1]%%:*}"; }; '
            f"words=({PROGRAM} doc); CURRENT=2; _{PROGRAM}_completion",
            id="zsh",
        ),
        pytest.param(
            "fish",
            ("--no-config", "-c"),
            f"{PROGRAM} completion fish | source; echo completed: (complete -C '{PROGRAM} doc' | string split -f1 \\t)",
            id="fish",
        ),
    ],
)
def test_the_script_works_in_its_shell(shell: str, options: tuple[str, ...], script: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / PROGRAM
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m partita_operator "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    answer = subprocess.run(
        [shell, *options, script], capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    assert answer.stdout.splitlines()[-1] == "completed: doctor", answer.stdout + answer.stderr


def test_commands_are_completed_without_loading_them() -> None:
    assert completed("s") == ["subclusters", "simulate"]
    assert set(completed("")) == set(SUBCOMMANDS)
    assert completed("--v") == ["--version"]
    assert "--kubeconfig" in completed("explain", "--k")


def test_a_command_without_its_extra_completes_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(_: str) -> None:
        raise ModuleNotFoundError("No module named 'kopf'", name="kopf")

    monkeypatch.setattr("partita_operator.cli.main.importlib.import_module", without)
    assert completed("operator", "--k") == []


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param(("explain", "tra"), ["traffic", "trains"], id="session"),
        pytest.param(("pause", "isess/v"), ["isess/vision"], id="reference"),
        pytest.param(("approve", "gpool/"), ["gpool/fast", "gpool/slow"], id="pool"),
        pytest.param(("plan", "isess/tr"), ["isess/traffic", "isess/trains"], id="session or file"),
        pytest.param(("plan", "manifests"), ["manifests"], id="file"),
        pytest.param(("explain", "nobody"), [], id="no such session"),
    ],
)
def test_names_come_from_the_cluster(
    words: tuple[str, ...], want: list[str], kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert completed(*words) == want


def test_the_cluster_of_the_command_line_is_asked(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert completed("explain", "--kubeconfig", str(kubeconfig), "v") == ["vision"]


@pytest.mark.parametrize("content", ["", "\x00", "[1]", "clusters: 1"])
def test_a_broken_kubeconfig_completes_to_nothing(
    content: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kubeconfig").write_text(content)
    assert session_names(ClusterPlace(tmp_path / "kubeconfig")) == ()
    assert capfd.readouterr() == ("", "")


def test_a_cluster_that_hangs_is_given_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = ClusterPlace(kubeconfig_of(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path))
        session_names(ClusterPlace(Path("/nowhere")))  # loads the client, which takes longer
        started = time.monotonic()
        assert session_names(place) == pool_names(place) == ()
        waited = time.monotonic() - started
    assert waited + 0.1 >= COMPLETION_SECONDS * 2
    assert waited < 30
    assert capfd.readouterr() == ("", "")
