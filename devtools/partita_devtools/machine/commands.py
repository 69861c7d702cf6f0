"""Runs long commands: output goes to a log file, progress to the user."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from partita_devtools.errors import DevError

Report = Callable[[str], None]
"""Receives one line of progress at a time, without a newline at its end."""

_REPORT_EVERY_S = 5.0
_LINE_WIDTH = 100


def run_logged(
    argv: Sequence[str],
    *,
    phase: str,
    log: Path,
    report: Report,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    usual_s: float | None = None,
) -> None:
    """Run `argv` to its end, appending its output to `log`.

    Reports `phase`, the seconds it has taken and the last line of the log every few seconds; also how long the rest
    takes, if the command usually takes `usual_s` seconds.
    Raises DevError with the end of the log if the command fails or cannot be started. If the caller is interrupted, the
    command and its child processes are stopped. If the caller is killed, the command keeps running.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    report(phase)
    started = time.monotonic()
    next_report_s = _REPORT_EVERY_S
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(argv)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
                close_fds=False,  # the command inherits locks that are held `with_children`
            )
        except OSError as error:
            raise DevError(f"{phase}: cannot run {argv[0]}: {error}") from error
        try:
            while True:
                try:
                    process.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    elapsed_s = time.monotonic() - started
                    if elapsed_s >= next_report_s:
                        last = " ".join(last_lines(log, 1)).strip()[:_LINE_WIDTH]
                        report(f"{phase}: {elapsed_s:.0f} s{_time_left(usual_s, elapsed_s)}: {last}")
                        next_report_s = elapsed_s + _REPORT_EVERY_S
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if process.returncode != 0:
        end = "\n  ".join(last_lines(log, 8))
        raise DevError(f"{phase}: `{' '.join(argv)}` failed; the end of its log {log}:\n  {end}")


def _time_left(usual_s: float | None, elapsed_s: float) -> str:
    """What to add to the seconds that a command has taken."""
    if usual_s is None:
        return ""
    left_s = usual_s - elapsed_s
    return f", about {left_s:.0f} s left" if left_s >= 1 else ", longer than usual"


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines of a text file that are not blank; none if there is no such file."""
    try:
        with path.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - 16_384))
            text = handle.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
