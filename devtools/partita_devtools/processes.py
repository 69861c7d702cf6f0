"""Start processes that may outlive us, and later stop exactly those and no others.

A pid alone does not identify a process, since the kernel reuses it; a pid with its start time does.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.errors import DevError


@dataclass(frozen=True, order=True)
class ProcessIdentity:
    """A process, told apart from any later one that gets the same pid.

    `started` is in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    """

    pid: int
    started: int


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has `pid` now; None if there is none, or only a zombie."""
    stat = _stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    return ProcessIdentity(pid, stat.started)


def is_running(process: ProcessIdentity) -> bool:
    """Whether this very process still runs (stopped counts as running, a zombie does not)."""
    return identify(process.pid) == process


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies_with_parent: bool = False,
) -> ProcessIdentity:
    """Start a process in a session of its own, its output appended to `log`.

    It survives the caller unless `dies_with_parent`, which asks the kernel to kill it when the calling
    thread ends, however that happens.
    Raises DevError if the program cannot be started.
    """
    setpriv = shutil.which("setpriv")
    if dies_with_parent and setpriv is not None:
        argv = [setpriv, "--pdeathsig", "KILL", "--", *argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            os.environ if environment is None else environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), appending, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise DevError(f"cannot start {argv[0]}: {error}") from error
    stat = _stat(pid)
    if stat is None:
        raise DevError(f"{argv[0]} ended at once; its log is {log}")
    return ProcessIdentity(pid, stat.started)


def send(process: ProcessIdentity, signal_number: signal.Signals) -> None:
    """Send a signal to this very process; does nothing if it has ended."""
    if is_running(process):
        try:
            os.kill(process.pid, signal_number)
        except ProcessLookupError:
            return


def stop(find: Callable[[], Iterable[ProcessIdentity]], *, grace_s: float = 10.0, kill_s: float = 10.0) -> None:
    """Stop every process that `find` names until it names none that runs.

    `find` is asked again and again, so that processes started while the others go down are caught too.
    SIGTERM comes first (and SIGCONT, for a stopped process cannot act on it); SIGKILL after `grace_s`
    seconds. Raises DevError if some still run `kill_s` seconds after that.
    """
    terminated: set[ProcessIdentity] = set()
    started = time.monotonic()
    while running := [process for process in find() if is_running(process)]:
        waited_s = time.monotonic() - started
        if waited_s > grace_s + kill_s:
            pids = ", ".join(str(process.pid) for process in running)
            raise DevError(f"processes {pids} did not end; look at them with `ps -fp {pids}`")
        for process in running:
            if waited_s > grace_s:
                send(process, signal.SIGKILL)
            elif process not in terminated:
                send(process, signal.SIGTERM)
                send(process, signal.SIGCONT)
                terminated.add(process)
        for process in running:
            _reap(process.pid)
        time.sleep(0.05)


def stop_all(processes: Sequence[ProcessIdentity], *, grace_s: float = 10.0) -> None:
    """As `stop`, for processes that start no others."""
    stop(lambda: processes, grace_s=grace_s)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def all_pids() -> list[int]:
    """The pids of all processes on this machine that `/proc` shows."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def related(roots: Iterable[ProcessIdentity], *, marker: str) -> set[ProcessIdentity]:
    """The roots that still run, and every process that comes from them.

    A process belongs when it descends from a root, is in the session of one, or carries the
    environment entry `marker` (`NAME=value`) that the roots were started with. The three together also
    find a process whose parent has died or which opened a session of its own.
    """
    stats = {pid: stat for pid in all_pids() if (stat := _stat(pid)) is not None}
    wanted = marker.encode()
    root_pids = {root.pid for root in roots if is_running(root)}
    sessions = {root.pid for root in roots}
    belonging = {
        pid
        for pid, stat in stats.items()
        if pid in root_pids or stat.session in sessions or wanted in _environment(pid)
    }
    grew = True
    while grew:
        children = {pid for pid, stat in stats.items() if stat.parent in belonging} - belonging
        belonging |= children
        grew = bool(children)
    belonging.discard(os.getpid())
    return {ProcessIdentity(pid, stats[pid].started) for pid in belonging if stats[pid].state not in "ZX"}


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
