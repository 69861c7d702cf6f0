"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import fcntl
import os
import random
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report

# Below the ports that the kernel uses for outgoing connections (usually 32768 and up), so that no connection takes a
# free port before its server binds it.
_LOWEST, _HIGHEST = 20000, 30000
_RECORD = Path("/tmp") / f"partita-next-port-{os.getuid()}"
"""Whose turn it is."""


def require_loopback() -> None:
    """Raises DevError if this machine does not reach itself, as in a new network namespace."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 1))  # sends nothing
        except OSError as error:
            raise DevError(
                f"127.0.0.1 cannot be reached ({error.strerror}). Switch the loopback interface on: ip link set lo up"
            ) from error


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """`count` different ports that nothing listens on. Raises DevError if there are fewer.

    A server may bind its port late, and again after a restart. All processes of this user take their ports in turn, so
    that no port is given to another program until all others have been.
    """
    with _next_port() as turn, ExitStack() as reserved:
        first, found = _read(turn), list[int]()
        for offset in range(_HIGHEST - _LOWEST):
            if len(found) == count:
                break
            port = _LOWEST + (first - _LOWEST + offset) % (_HIGHEST - _LOWEST)
            candidate = reserved.enter_context(socket.socket())
            try:
                candidate.bind(("0.0.0.0", port))
            except OSError:
                continue
            found.append(port)
        if len(found) < count:
            raise DevError(f"found only {len(found)} of {count} free ports between {_LOWEST} and {_HIGHEST}")
        if found:
            _write(turn, found[-1] + 1)
        return found


def same_or_free_port(earlier: int | None, server: str, report: Report) -> int:
    """The server's port of an earlier start, if nothing else listens on it now; else another one. Raises DevError."""
    if earlier is not None and is_free(earlier):
        return earlier
    (port,) = free_ports(1)
    if earlier is not None:
        report(f"another program uses port {earlier} now; the {server} gets port {port}")
    return port


@contextmanager
def _next_port() -> Iterator[int]:
    """The open file, locked, that says whose turn it is. Raises DevError if it cannot be written."""
    try:
        handle = os.open(_RECORD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DevError(
            f"{_RECORD} cannot be opened ({error.strerror}). Remove it: {shlex.join(['rm', str(_RECORD)])}"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _read(turn: int) -> int:
    """The port from which to look; any one if nothing is recorded."""
    text = os.pread(turn, 16, 0).decode("ascii", errors="replace").strip()
    return int(text) if text.isdecimal() else random.randrange(_LOWEST, _HIGHEST)


def _write(turn: int, port: int) -> None:
    """Record the next port. A full disk only costs the turn."""
    with suppress(OSError):
        os.pwrite(turn, f"{port:<8}".encode(), 0)
