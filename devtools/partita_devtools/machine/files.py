"""Files shared between processes: locks, and JSON documents that are replaced atomically."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WAIT_REPORT_EVERY_S = 5.0


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Replace `path` by `document` in one step; only this user can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    document: dict[str, Any] = json.loads(text)
    return document


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


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
