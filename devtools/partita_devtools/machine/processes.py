"""Starts processes that may run longer than this one, and later stops exactly these.

The kernel reuses pids, so a process is identified by its pid and its start time.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from partita_devtools.errors import DevError


@dataclass(frozen=True, order=True)
class ProcessIdentity:
    """A process, distinct from any later one with the same pid.

    `started` is in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    """

    pid: int
    started: int


@dataclass(frozen=True)
class Marker:
    """An environment variable that names the state directory of a process.

    What the process starts inherits it, so all of these processes are found, with or without a record of them.
    """

    variable: str

    def environment(self, state_dir: Path, part: str = "") -> dict[str, str]:
        """The variable for a process of `state_dir`, or of one of several parts that have it."""
        return {self.variable: str(state_dir.resolve() / part)}

    def processes(self, state_dir: Path, roots: Iterable[ProcessIdentity] = (), part: str = "") -> set[ProcessIdentity]:
        """The processes with the variable, and those of `roots` as `related` finds them."""
        return related(roots, marker=f"{self.variable}={state_dir.resolve() / part}")


@dataclass(frozen=True)
class _Stat:
    ended: bool
    parent: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(_ended(pid, fields[0]), parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def _ended(pid: int, state: str) -> bool:
    """Whether the process holds nothing any more, no port either.

    A killed process is a zombie as soon as its first thread has ended. Its files stay open until the last thread ends.
    """
    if state not in "ZX":
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has `pid` now; None if there is none, or only a zombie without threads."""
    stat = _stat(pid)
    if stat is None or stat.ended:
        return None
    return ProcessIdentity(pid, stat.started)


def is_running(process: ProcessIdentity) -> bool:
    """Whether the process still runs (a stopped process does, a zombie with threads too, another zombie does not)."""
    return identify(process.pid) == process


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies_with_parent: bool = False,
) -> ProcessIdentity:
    """Start a process in a new session, with its output appended to `log`.

    It survives the caller. With `dies_with_parent` the kernel kills it when this process ends.
    Raises DevError if the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    variables = os.environ if environment is None else environment
    setpriv = shutil.which("setpriv")
    try:
        if dies_with_parent and setpriv is not None:
            pid = _start_in_lasting_thread([setpriv, "--pdeathsig", "KILL", "--", *argv], log, variables)
        else:
            pid = _start(argv, log, variables)
    except OSError as error:
        raise DevError(f"cannot start {argv[0]}: {error}") from error
    stat = _stat(pid)
    if stat is None:
        raise DevError(f"{argv[0]} ended at once; its log is {log}")
    return ProcessIdentity(pid, stat.started)


def _start(argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        argv[0],
        list(argv),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), appending, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _start_in_lasting_thread(argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start it in a thread that ends no earlier than the process: the kernel kills it when that thread ends."""
    pid: Future[int] = Future()

    def start_and_wait() -> None:
        try:
            pid.set_result(_start(argv, log, environment))
        except Exception as error:
            pid.set_exception(error)
        else:
            with suppress(ChildProcessError):  # `stop` may have reaped it.
                os.waitid(os.P_PID, pid.result(), os.WEXITED | os.WNOWAIT)

    Thread(target=start_and_wait, daemon=True).start()
    return pid.result()


def send(process: ProcessIdentity, signal_number: signal.Signals) -> None:
    """Send a signal to the process; does nothing if it has ended."""
    if is_running(process):
        try:
            os.kill(process.pid, signal_number)
        except ProcessLookupError:
            return


def stop(find: Callable[[], Iterable[ProcessIdentity]], *, grace_s: float = 10.0, kill_s: float = 10.0) -> None:
    """Stop all processes that `find` returns, until it returns none that runs.

    `find` is called repeatedly, so processes that start meanwhile are stopped, too. SIGTERM comes first (and SIGCONT,
    because a stopped process cannot handle it), SIGKILL after `grace_s` seconds. Raises DevError if processes still run
    `kill_s` seconds later.
    """
    terminated: set[ProcessIdentity] = set()
    started = time.monotonic()
    while running := [process for process in find() if is_running(process)]:
        waited_s = time.monotonic() - started
        if waited_s > grace_s + kill_s:
            pids = ",".join(str(process.pid) for process in running)
            raise DevError(f"processes {pids} did not end; to inspect them: ps -fp {pids}")
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
    """Stop processes that start no others."""
    stop(lambda: processes, grace_s=grace_s)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def all_pids() -> list[int]:
    """The pids of all processes in `/proc`."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def related(roots: Iterable[ProcessIdentity], *, marker: str) -> set[ProcessIdentity]:
    """The roots that still run, and all processes that they started.

    These are the descendants of a root, the processes in the session of a root, and those with the environment entry
    `marker` (`NAME=value`) of the roots. Together this finds processes whose parent has died or that opened a new
    session.
    """
    stats = {pid: stat for pid in all_pids() if (stat := _stat(pid)) is not None}
    entry = os.fsencode(marker)
    root_pids = {root.pid for root in roots if is_running(root)}
    sessions = {root.pid for root in roots}
    belonging = {
        pid for pid, stat in stats.items() if pid in root_pids or stat.session in sessions or entry in _environment(pid)
    }
    grew = True
    while grew:
        children = {pid for pid, stat in stats.items() if stat.parent in belonging} - belonging
        belonging |= children
        grew = bool(children)
    belonging.discard(os.getpid())
    return {ProcessIdentity(pid, stats[pid].started) for pid in belonging if not stats[pid].ended}


def variable(process: ProcessIdentity, name: str) -> str:
    """An environment variable that the process was started with; empty if it has none or has ended."""
    prefix = os.fsencode(f"{name}=")
    found = (entry for entry in _environment(process.pid) if entry.startswith(prefix))
    return os.fsdecode(next(found, prefix).removeprefix(prefix))


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
