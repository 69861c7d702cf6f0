"""`partita doctor`: its output, its exit code, and that it loads nothing heavy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.operator.cli.doctor.pasted_commands import check_commands

from partita_operator.cli.doctor.findings import Area, CheckFinding, Level, exit_code
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main


def doctor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def of_area(result: Result, area: Area) -> list[dict[str, Any]]:
    return [finding for finding in json.loads(result.stdout)["findings"] if finding["area"] == area]


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """A kubeconfig of an API server that refuses connections."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            }
        )
    )
    return path


def test_an_api_server_that_does_not_answer_is_an_error(unreachable: Path) -> None:
    result = doctor("--kubeconfig", unreachable, "-o", "json")
    assert result.exit_code == ExitCode.FAILED, result.output
    (finding,) = of_area(result, Area.CLUSTER)
    assert finding["level"] == "error"
    assert "http://127.0.0.1:1" in finding["message"]


NOT_A_CERTIFICATE = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: eA==}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
"""
CONTENTS = {
    "empty": "",
    "a list": "[1, 2]",
    "broken YAML": "{",
    "binary": "\0\1\2",
    "no certificate": NOT_A_CERTIFICATE,
    "no server": NOT_A_CERTIFICATE.replace("https://127.0.0.1:1", "http://[::bad"),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_an_unusable_kubeconfig_is_an_error_without_a_traceback(content: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(content)
    result = doctor("--kubeconfig", tmp_path / "kubeconfig", "-o", "json")
    assert result.exit_code == ExitCode.FAILED, result.output
    (finding,) = of_area(result, Area.CLUSTER)
    assert finding["level"] == "error"


def test_development_tools_that_cannot_be_loaded_are_an_error(
    monkeypatch: pytest.MonkeyPatch, unreachable: Path
) -> None:
    monkeypatch.setitem(sys.modules, "partita_devtools.checks", None)
    (finding,) = of_area(doctor("--kubeconfig", unreachable, "-o", "json"), Area.DEVELOPMENT)
    assert finding["level"] == "error"
    assert "cannot be loaded" in finding["message"]


def test_without_a_cluster_only_the_machine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = doctor("-o", "json")
    (finding,) = of_area(result, Area.CLUSTER)
    assert finding["level"] == "skipped"
    found = [CheckFinding(**entry) for entry in json.loads(result.stdout)["findings"]]
    assert exit_code(CheckFinding(**{**vars(f), "level": Level(f.level)}) for f in found) == result.exit_code
    check_commands(found)
    assert json.loads(result.stdout)["summary"]["skipped"] >= 1


def test_the_text_has_each_command_on_its_own_line(unreachable: Path) -> None:
    lines = doctor("--kubeconfig", unreachable).output.splitlines()
    assert "            kubectl cluster-info" in lines
    assert lines[-1].startswith("errors: 1, warnings: ")


def test_without_the_kubernetes_client_the_machine_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setattr("partita_operator.cli.doctor.command.importlib.util.find_spec", lambda _name: None)
    result = doctor("-o", "json")
    (finding,) = of_area(result, Area.CLUSTER)
    assert "[operator]" in finding["command"]
    (devtools,) = of_area(result, Area.DEVELOPMENT)
    assert devtools["level"] == "skipped"


def test_neither_torch_nor_ray_is_loaded(unreachable: Path) -> None:
    program = f"""
import sys
from partita_operator.cli.main import main
try:
    main(["doctor", "--kubeconfig", {str(unreachable)!r}, "-o", "json"])
finally:
    print({{"torch", "ray"}} & set(sys.modules), file=sys.stderr)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == ExitCode.FAILED
    assert answer.stderr.strip().splitlines() == ["set()"]
    assert json.loads(answer.stdout)["findings"]
