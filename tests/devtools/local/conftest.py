"""Local mode with an API server, and without Ray."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from partita_devtools.api_server.process import start_api_server
from partita_operator.cli.main import main

Command = Callable[..., Result]

RAY_STATE: Final[dict[str, Any]] = {
    "cluster_id": "1",
    "token": "t",
    "temp_dir": "/nonexistent",
    "ports": {"gcs": 1, "dashboard": 1, "client_server": 1, "serve_http": 1},
    "config": {"nodes": [{"name": "cpu", "slots": 2}]},
    "nodes": {},
    "dies_with_parent": False,
}


@pytest.fixture
def local(tmp_path: Path) -> Command:
    """`partita local COMMAND` for one state directory."""

    def run(command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["local", command, *arguments, "--state-dir", str(tmp_path / "state")])

    return run


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The state directory of local mode with an API server, and a Ray cluster that is down."""
    state_dir = tmp_path / "state"
    server = start_api_server(state_dir, report=print, dies_with_parent=True)
    environment = {"kubeconfig": str(server.kubeconfig), "own_control_plane": False, "embedded": True}
    (state_dir / "environment.json").write_text(json.dumps(environment))
    (state_dir / "ray-cluster.json").write_text(json.dumps(RAY_STATE))
    yield state_dir
    server.stop()
