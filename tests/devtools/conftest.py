"""Local mode with an API server, and with processes that sleep in place of Ray and the operator."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from partita_devtools.api_server.process import start_api_server
from partita_devtools.machine.processes import identify
from partita_devtools.ray_cluster.commands import NodePorts

RAY_STATE: Final[dict[str, Any]] = {
    "token": "t",
    "temp_dir": "/nonexistent",
    "ports": {"gcs": 1, "dashboard": 1, "serve_http": 1},
    "config": {"nodes": [{"name": "cpu", "slots": 2}]},
    "nodes": {},
    "dies_with_parent": False,
}
NODE_PORTS: Final = dict.fromkeys(NodePorts.__dataclass_fields__, 1)


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


@contextmanager
def process_of(state_dir: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is recorded as Ray's only node, or as the operator."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        recorded = {"pid": identity.pid, "started": identity.started}
        if name == "operator":
            record: dict[str, Any] = {"process": recorded, "health_port": 1, "ray_token": RAY_STATE["token"]}
            (state_dir / "operator.json").write_text(json.dumps(record))
        else:
            nodes = {"head": {"pool": None, "ports": NODE_PORTS, "process": recorded}}
            (state_dir / "ray-cluster.json").write_text(json.dumps({**RAY_STATE, "nodes": nodes}))
        try:
            yield process
        finally:
            process.kill()
