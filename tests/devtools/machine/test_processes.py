"""Processes are stopped by identity: the ones we started, with all that came from them, and no others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_native_id

import pytest
from tests.patience import PATIENCE_SECONDS, eventually

from partita_devtools.errors import DevError
from partita_devtools.machine.processes import ProcessIdentity, identify, is_running, related, spawn, stop, stop_all

# Prints its children's pids; both children ignore SIGTERM and one leaves its parent's session.
FAMILY = """
import subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
for leave in (False, True):
    child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=leave, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
time.sleep(600)
"""


# Its first thread ends, and another one keeps the port that it prints.
HEADLESS = """
import ctypes, socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(600,)).start()
print(listener.getsockname()[1], flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def lines_of(log: Path, count: int) -> list[str]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(lines := log.read_text().split()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return lines


def test_a_family_is_stopped_whole_even_when_its_head_has_died(tmp_path: Path) -> None:
    marker = f"PARTITA_TEST_FAMILY={tmp_path}"
    name, value = marker.split("=", 1)
    environment = {**os.environ, name: value}
    head = spawn([sys.executable, "-c", FAMILY], log=tmp_path / "log", environment=environment)
    children = [identify(int(pid)) for pid in lines_of(tmp_path / "log", 2)]
    stop_all([head])
    assert not is_running(head)
    orphans = [child for child in children if child is not None]
    assert len(orphans) == 2
    assert all(is_running(child) for child in orphans)

    stop(lambda: related([head], marker=marker), grace_s=0.3)
    assert not any(is_running(child) for child in orphans)


def test_a_process_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", HEADLESS], log=tmp_path / "log")
    port = int(lines_of(tmp_path / "log", 1)[0])
    stat = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: stat.read_text().split()[2] == "Z")

    assert is_running(process)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))

    stop_all([process])
    assert not is_running(process)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_the_proposed_command_shows_processes_that_do_not_end() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        with pytest.raises(DevError) as error:
            stop(lambda: filter(None, [identify(process.pid)]), grace_s=0.0, kill_s=-1.0)
        command = str(error.value).partition("to inspect them: ")[2]
        shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        assert "sleep 600" in shown
    finally:
        process.kill()
        process.wait()


def test_a_later_process_with_the_same_pid_is_spared() -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        stop_all([ProcessIdentity(bystander.pid, started=1)])
        assert identify(bystander.pid) is not None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_stopped_process_can_be_ended(tmp_path: Path) -> None:
    process = spawn(["sleep", "600"], log=tmp_path / "log")
    os.kill(process.pid, 19)
    stop_all([process], grace_s=5.0)
    assert not is_running(process)


def test_a_process_that_is_to_die_with_its_parent_does(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, time\n"
        "from partita_devtools.machine.processes import spawn\n"
        f"child = spawn(['sleep', '600'], log=pathlib.Path({str(tmp_path / 'log')!r}), dies_with_parent=True)\n"
        # The kernel is asked just before the program itself starts.
        "while not pathlib.Path(f'/proc/{child.pid}/cmdline').read_bytes().startswith(b'sleep'):\n"
        "    time.sleep(0.01)\n"
        "print(child.pid, child.started, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    child = ProcessIdentity(*map(int, answer.stdout.split()))
    eventually(lambda: not is_running(child))


def test_a_process_that_is_to_die_with_its_parent_survives_the_thread_that_started_it(tmp_path: Path) -> None:
    log, question = tmp_path / "log", tmp_path / "question"
    os.mkfifo(question)
    answering = ["sh", "-c", f"echo starts; read word < {question}; echo answers"]
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(get_native_id).result()
        child = pool.submit(spawn, answering, log=log, dies_with_parent=True).result()
        lines_of(log, 1)
    eventually(lambda: not Path(f"/proc/self/task/{thread}").exists())

    asking = os.open(question, os.O_RDWR)  # does not wait for a reader, which may be dead
    try:
        os.write(asking, b"word\n")
        eventually(lambda: not is_running(child))
    finally:
        os.close(asking)
        stop_all([child])
    assert log.read_text().split() == ["starts", "answers"]


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DevError, match="no-such-program"):
        spawn(["no-such-program"], log=tmp_path / "log")
