"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report

# Below the ports that the kernel uses for outgoing connections (usually 32768 and up), so that no connection takes a
# free port before its server binds it.
_LOWEST, _HIGHEST = 20000, 30000


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
    """`count` different ports that nothing listens on. Raises DevError if there are fewer."""
    found: list[int] = []
    with ExitStack() as reserved:
        for port in random.sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST):
            if len(found) == count:
                break
            candidate = reserved.enter_context(socket.socket())
            try:
                candidate.bind(("0.0.0.0", port))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise DevError(f"found only {len(found)} of {count} free ports between {_LOWEST} and {_HIGHEST}")
    return found


def same_or_free_port(earlier: int | None, server: str, report: Report) -> int:
    """The server's port of an earlier start, if nothing else listens on it now; else another one. Raises DevError."""
    if earlier is not None and is_free(earlier):
        return earlier
    (port,) = free_ports(1)
    if earlier is not None:
        report(f"another program uses port {earlier} now; the {server} gets port {port}")
    return port
