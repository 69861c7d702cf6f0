"""Runs a model in a process of its own, and takes nothing from it but one bounded, checked result.

The process above runs no code of models. It alone writes the log: what the model's process prints gets a prefix.
"""

import fcntl
import os
import selectors
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from partita_api.meta import SpecModel
from partita_api.profile import Profile, ProfileRequest
from partita_profiling.isolation import end_with_parent
from partita_profiling.model_output import ModelOutput
from partita_profiling.result import LOG_TAIL_LINES, MOST_RESULT_BYTES, ProfileFailure, parse_result

_CHUNK_BYTES: Final = 65536
_POLL_SECONDS: Final = 0.5


class ModelTask(SpecModel):
    """What the model's process is to do."""

    request: ProfileRequest
    seconds: float


@dataclass(frozen=True)
class ModelProcess:
    """A process that waits for its task."""

    pid: int
    tasks: int
    """A descriptor: its task goes there."""
    output: int
    """A descriptor: what it prints comes from there."""
    report: int
    """A descriptor: its result comes from there."""

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """End it and the processes that it has started."""
        for kill in (os.killpg, os.kill):  # it may not yet have a group of its own
            with suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code once it has ended, or minus the number of the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_model_process() -> ModelProcess:
    """Fork the process that will run a model. This one must have no other thread.

    A fork has at hand what this process has imported: in a development cluster, that is torch.
    """
    (task, tasks), (output, written), (report, reported) = os.pipe(), os.pipe(), os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become_model_process(task, written, reported)
    for descriptor in (task, written, reported):
        os.close(descriptor)
    return ModelProcess(pid, tasks, output, report)


def _become_model_process(task: int, output: int, report: int) -> NoReturn:
    """Wait for the task in this process, and run it. Has nothing open but these descriptors."""
    code = 1
    try:
        os.setsid()
        end_with_parent()
        given = (os.open(os.devnull, os.O_RDONLY), output, output, task, report)
        kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(given)) for descriptor in given]
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number, inheritable=number <= sys.stderr.fileno())
        os.closerange(len(given), os.sysconf("SC_OPEN_MAX"))
        from partita_profiling.model_process import run_task  # torch, which the process above does not import

        run_task(given.index(task), given.index(report))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def run_model(process: ModelProcess, task: ModelTask, log: Callable[[str], None]) -> Profile | ProfileFailure:
    """Profile the model in the process, pass its output on to `log`, and end it.

    Only a profile of the task's request is one; everything else is a failure with the reason.
    """
    output, last_lines = ModelOutput(), deque[str](maxlen=LOG_TAIL_LINES)

    def show(chunk: bytes) -> None:
        for line in output.lines(chunk):
            last_lines.append(line)
            log(line)

    try:
        _send(process, task)
        found = _follow(process, show)
    finally:
        process.kill()
    if not found:
        return _ended(process.wait(), last_lines)
    return _checked(parse_result(found.decode(errors="replace")), task.request)


def _send(process: ModelProcess, task: ModelTask) -> None:
    with suppress(BrokenPipeError), os.fdopen(process.tasks, "wb") as tasks:  # a process that ended has said why
        tasks.write(task.model_dump_json(by_alias=True, exclude_none=True).encode())


def _follow(process: ModelProcess, show: Callable[[bytes], None]) -> bytes:
    """What the process reports: the first line, or less if it ends before. Passes its output on to `show`.

    It does not wait for the ends of the pipes: processes that the model left behind may keep them open.
    """
    found = b""
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.output, selectors.EVENT_READ)
        pipes.register(process.report, selectors.EVENT_READ)
        while True:
            ended = process.has_ended()
            ready = [key.fd for key, _ in pipes.select(_POLL_SECONDS)]
            if process.output in ready:
                chunk = os.read(process.output, _CHUNK_BYTES)
                show(chunk)
                if not chunk:
                    pipes.unregister(process.output)
            if process.report in ready:
                chunk = os.read(process.report, _CHUNK_BYTES)
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
