"""The tools of the project find nothing: types, style, layers, and what each part may import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "."], id="style"),
        pytest.param(["ruff", "format", "--check", "."], id="format"),
        pytest.param(["mypy"], id="types"),
        pytest.param(["lint-imports"], id="layers"),
    ],
)
def test_tool_has_nothing_to_say(command: list[str]) -> None:
    result = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "foreign"),
    [
        pytest.param("partita_api.crd_schema", ["ray", "torch", "kopf", "kubernetes", "pyomo"], id="api"),
        pytest.param("partita_planner.planning", ["ray", "torch", "kopf", "kubernetes"], id="planner"),
        pytest.param("partita_runtime.scheduling.core", ["ray", "torch", "kopf", "kubernetes"], id="scheduling core"),
        pytest.param("partita_runtime.simulation", ["ray", "torch", "kopf", "kubernetes"], id="simulator"),
        pytest.param("partita_profiling.result", ["ray", "torch", "kopf", "kubernetes"], id="profile results"),
        pytest.param("partita_operator.cli.main", ["ray", "torch", "kopf", "kubernetes", "pyomo"], id="command line"),
        pytest.param("partita_operator.handlers.operator", ["ray", "torch"], id="operator"),
    ],
)
def test_module_imports_without_the_extras_it_does_not_need(module: str, foreign: list[str]) -> None:
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in foreign)
    program = f"import sys; {blocked}; import {module}"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_operator_folder_is_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists(), "a package called operator would shadow Python's"
