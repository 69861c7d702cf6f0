"""Ten minutes of load while processes are killed: every request is answered or refused, and memory does not grow."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "benchmarks/serving/soak.py"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_request_is_accounted_for_when_processes_are_killed() -> None:
    summary = soak("--minutes", "10")
    assert summary["problems"] == [], json.dumps(summary, indent=1)
    assert summary["answered"] + sum(summary["refused"].values()) == summary["sent"]
    assert {"replica", "node", "controller", "directory"} == summary["killed"].keys()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_frontend_breaks_only_requests_until_its_restart() -> None:
    summary = soak("--minutes", "3", "--kill", "frontend,replica")
    assert summary["problems"] == [], json.dumps(summary, indent=1)
    ended = summary["answered"] + sum(summary["refused"].values()) + summary["broken"]
    assert ended == summary["sent"]
    assert {"frontend", "replica"} == summary["killed"].keys()


def soak(*options: str) -> dict[str, Any]:
    run = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1]))
