"""Files shared between processes: locks, and records that are replaced in one step."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from partita_devtools.errors import DevError

_WAIT_REPORT_EVERY_S = 5.0

R = TypeVar("R")


def write_record(path: Path, record: object) -> None:
    """Replace `path` by a dataclass as JSON, as `write_private` does."""
    write_private(path, TypeAdapter(type(record)).dump_json(record, indent=2) + b"\n")


def read_record(path: Path, kind: type[R]) -> R | None:
    """The dataclass that `write_record` wrote to `path`; None if there is no such file.

    Raises DevError with what to do if the file does not hold one.
    """
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        remove = shlex.join(["rm", str(path)])
        raise DevError(f"{path} is damaged ({problem}). Remove it, then start again: {remove}") from error


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read. A crash leaves the old or the new file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # that of a full disk has no name
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a crash of the machine."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, report: Callable[[str], None], purpose: str, with_children: bool = False) -> Iterator[None]:
    """Hold the lock file `path`; while another process holds it, wait and report that every few seconds.

    The lock is released when its holder dies. With `with_children`, the commands that the holder runs (see
    `commands.run_logged`) hold it, too: if the holder is killed, the lock is released when its command ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        os.set_inheritable(handle.fileno(), with_children)
        started = time.monotonic()
        next_report_s = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited_s = time.monotonic() - started
                if waited_s >= next_report_s:
                    report(f"waiting for another process to {purpose} ({waited_s:.0f} s, lock {path})")
                    next_report_s = waited_s + _WAIT_REPORT_EVERY_S
                time.sleep(0.2)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
