"""Runs a model in a process of its own, and takes nothing from it but one bounded, checked result.

The process above runs no code of models. It alone writes the log: what the model's process prints gets a prefix.
"""

import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

from partita_api.meta import SpecModel
from partita_api.profile import Profile, ProfileRequest
from partita_profiling.model_output import ModelOutput
from partita_profiling.result import LOG_TAIL_LINES, MOST_RESULT_BYTES, ProfileFailure, parse_result

_CHUNK_BYTES: Final = 65536
_POLL_SECONDS: Final = 0.5


class ModelTask(SpecModel):
    """What the model's process is to do; its standard input."""

    request: ProfileRequest
    seconds: float


def run_model(task: ModelTask, log: Callable[[str], None]) -> Profile | ProfileFailure:
    """Profile the model in another process, and pass its output on to `log`.

    Only a profile of the task's request is one; everything else is a failure with the reason.
    """
    output, last_lines = ModelOutput(), deque[str](maxlen=LOG_TAIL_LINES)

    def show(chunk: bytes) -> None:
        for line in output.lines(chunk):
            last_lines.append(line)
            log(line)

    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb", buffering=0) as report,
        subprocess.Popen(
            [sys.executable, "-m", "partita_profiling.model_process", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
        ) as process,
    ):
        os.close(writing)
        try:
            _send(process, task)
            found = _follow(process, report, show)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not found:
        return _ended(process.returncode, last_lines)
    return _checked(parse_result(found.decode(errors="replace")), task.request)


def _send(process: subprocess.Popen[bytes], task: ModelTask) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as tasks:  # a process that ended has said why
        tasks.write(task.model_dump_json(by_alias=True, exclude_none=True).encode())


def _follow(process: subprocess.Popen[bytes], report: IO[bytes], show: Callable[[bytes], None]) -> bytes:
    """What the process reports: the first line, or less if it ends before. Passes its output on to `show`.

    It does not wait for the ends of the pipes: processes that the model left behind may keep them open.
    """
    assert process.stdout is not None
    output = process.stdout.fileno()
    found = b""
    with selectors.DefaultSelector() as pipes:
        pipes.register(output, selectors.EVENT_READ)
        pipes.register(report, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None
            ready = [key.fd for key, _ in pipes.select(_POLL_SECONDS)]
            if output in ready:
                chunk = os.read(output, _CHUNK_BYTES)
                show(chunk)
                if not chunk:
                    pipes.unregister(output)
            if report.fileno() in ready:
                chunk = os.read(report.fileno(), _CHUNK_BYTES)
                found += chunk
                if not chunk or b"\n" in chunk or len(found) > MOST_RESULT_BYTES:
                    return found
            elif ended:
                return found


def _ended(status: int, last_lines: deque[str]) -> ProfileFailure:
    words = "\n".join(last_lines)
    return ProfileFailure.of(
        "NoResult",
        f"the model's process ended with status {status} and without a result (out of memory?)"
        + (f"; its output ends: {words}" if words else ""),
    )


def _checked(result: Profile | ProfileFailure, request: ProfileRequest) -> Profile | ProfileFailure:
    if isinstance(result, Profile) and (differences := result.differences(request)):
        return ProfileFailure.of("NoResult", f"the result is not of the request: {'; '.join(differences)}")
    return result
