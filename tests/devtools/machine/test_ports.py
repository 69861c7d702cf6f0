"""Ports on the loopback interface."""

import shlex
import sys
from pathlib import Path

import pytest
from tests.docs.shell import Shell

from partita_operator.cli.exit_codes import ExitCode


def test_a_machine_without_loopback_is_told_the_command(tmp_path: Path) -> None:
    reader = Shell(tmp_path)
    if reader.run("unshare --map-root-user --net ip link show lo").returncode:
        pytest.skip("this machine permits no network namespaces, or has no `ip`")

    up = "partita local up --state-dir state"
    failed = reader.run(f"unshare --map-root-user --net {up}")

    assert failed.returncode == ExitCode.FAILED
    *_, command = failed.stderr.rstrip().rpartition("on: ")
    assert failed.stderr.startswith("Error: 127.0.0.1 cannot be reached (Network is unreachable).")
    probe = f"{sys.executable} -c 'from partita_devtools.machine.ports import require_loopback as r; r()'"
    reader.paste(f"unshare --map-root-user --net sh -c {shlex.quote(f'{command} && {probe}')}")
