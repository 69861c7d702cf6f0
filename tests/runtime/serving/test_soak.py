"""Ten minutes of load while processes are killed: every request is answered or refused, and memory does not grow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "soak.py"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_request_is_accounted_for_whatever_is_killed() -> None:
    run = subprocess.run([sys.executable, SCRIPT, "--minutes", "10"], capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    summary = json.loads(run.stdout.splitlines()[-1])
    assert summary["problems"] == [], summary
    assert summary["answered"] + sum(summary["refused"].values()) == summary["sent"]
    assert {"replica", "node", "controller", "directory"} == summary["killed"].keys()
