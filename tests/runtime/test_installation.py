"""The commands that messages propose for a missing extra of Partita."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from partita_runtime import installation

ROOT = Path(__file__).parents[2]


class InstalledFrom(Distribution):
    """A distribution that has only its origin."""

    def __init__(self, origin: Mapping[str, Any] | None) -> None:
        self._origin = origin

    def read_text(self, filename: str) -> str | None:
        return json.dumps(self._origin) if filename == "direct_url.json" and self._origin else None

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("origin", "want_extra", "want_devtools"),
    [
        pytest.param(
            {"url": ROOT.as_uri(), "dir_info": {"editable": True}},
            ["-e", f"{ROOT}[operator]"],
            ["-e", f"{ROOT}/devtools"],
            id="checkout",
        ),
        pytest.param(
            {"url": "file:///wheels/partita.whl", "archive_info": {}},
            ["partita[operator] @ file:///wheels/partita.whl"],
            ["partita-devtools"],
            id="wheel",
        ),
        pytest.param(None, ["partita[operator]"], ["partita-devtools"], id="index"),
    ],
)
def test_a_missing_extra_is_installed_in_the_same_way_as_partita(
    origin: Mapping[str, Any] | None,
    want_extra: list[str],
    want_devtools: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation, "distribution", lambda _: InstalledFrom(origin))
    pip = [sys.executable, "-m", "pip", "install"]
    assert shlex.split(installation.extra_command("operator")) == [*pip, *want_extra]
    assert shlex.split(installation.devtools_command()) == [*pip, *want_devtools]


@pytest.mark.slow
@pytest.mark.parametrize("command", [installation.extra_command("operator"), installation.devtools_command()])
def test_the_proposed_command_runs_when_pasted(command: str) -> None:
    """pip resolves the packages and installs nothing."""
    done = subprocess.run(
        ["sh", "-c", f"{command} --dry-run --no-deps"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
