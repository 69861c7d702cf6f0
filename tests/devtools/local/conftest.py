"""The commands of local mode."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from partita_operator.cli.main import main

Command = Callable[..., Result]


@pytest.fixture
def local(tmp_path: Path) -> Command:
    """`partita local COMMAND` for one state directory."""

    def run(command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["local", command, *arguments, "--state-dir", str(tmp_path / "state")])

    return run
