"""Long commands: their progress is told, their failures explained, and none runs on unlocked."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import eventually

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import run_logged
from partita_devtools.machine.processes import identify


def test_progress_has_phase_seconds_and_the_last_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partita_devtools.machine.commands._REPORT_EVERY_S", 0.0)
    said: list[str] = []
    run_logged(
        ["sh", "-c", "echo unpacking; sleep 1; echo done"],
        phase="building",
        log=tmp_path / "log",
        report=said.append,
    )
    assert said[0] == "building"
    assert any(re.fullmatch(r"building: \d+ s: unpacking", line) for line in said), said
    assert "done" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("usual_s", "want"),
    [
        (100.0, r"building: \d+ s, about \d+ s left: step"),
        (0.1, r"building: \d+ s, longer than usual: step"),
    ],
)
def test_progress_says_the_time_left(
    usual_s: float, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partita_devtools.machine.commands._REPORT_EVERY_S", 0.0)
    said: list[str] = []
    command = ["sh", "-c", "echo step; sleep 1"]
    run_logged(command, phase="building", log=tmp_path / "log", report=said.append, usual_s=usual_s)
    assert any(re.fullmatch(want, line) for line in said), said


def test_a_failure_shows_the_command_and_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(DevError) as raised:
        run_logged(["sh", "-c", "echo no space left; exit 7"], phase="building", log=tmp_path / "log", report=print)
    assert "building" in str(raised.value)
    assert "no space left" in str(raised.value)
    assert str(tmp_path / "log") in str(raised.value)


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DevError, match="no-such-program"):
        run_logged(["no-such-program"], phase="building", log=tmp_path / "log", report=print)


HOLDER = """
import pathlib, sys
from partita_devtools.machine.commands import run_logged
from partita_devtools.machine.files import locked
directory = pathlib.Path(sys.argv[1])
with locked(directory / "lock", report=print, purpose="build", with_children=True):
    script = "sleep 600 & echo $! > pids; wait"
    run_logged(["sh", "-c", script], phase="p", log=directory / "log", report=print, directory=directory)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that holds the lock while a command of its runs; `pids` names the command's child."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().endswith("\n"))
    return process


def test_an_interrupt_ends_the_command_with_all_it_started(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    grandchild = int((tmp_path / "pids").read_text())
    holder.send_signal(signal.SIGINT)
    holder.wait(30)
    eventually(lambda: identify(grandchild) is None)
    assert is_free(tmp_path / "lock")


def test_when_the_holder_is_killed_the_lock_is_held_until_its_command_ends(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    grandchild = int((tmp_path / "pids").read_text())
    holder.kill()
    holder.wait(30)
    assert not is_free(tmp_path / "lock")
    os.kill(grandchild, signal.SIGKILL)
    eventually(lambda: is_free(tmp_path / "lock"))


def is_free(lock: Path) -> bool:
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
