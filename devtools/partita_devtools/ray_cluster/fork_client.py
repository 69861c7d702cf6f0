"""Stands for a process that a fork server runs: takes its signals and ends with it. Without a server it becomes one.

It runs as a script, with nothing but the standard library, in place of Python:
`python -I -S fork_client.py SERVER PYTHON ARGUMENTS...`.
"""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def ask(connection: socket.socket, server: str, arguments: list[str]) -> None:
    """Have the server run Python with these arguments and this one's directory, environment and files. Raises OSError.

    It answers with two lines: the pid, and the exit code as `os.waitstatus_to_exitcode` gives it.
    """
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    connection.connect(server)
    socket.send_fds(connection, [b"\n"], [0, 1, 2])
    connection.sendall(json.dumps(request).encode() + b"\n")


def catch_signals() -> socket.socket:
    """A socket that receives the number of each signal from now on, one byte each.

    Python runs handlers between instructions: that of a signal just before a system call waits for the call's return.
    """
    received, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(written.detach())
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)
    return received


def pass_signals_on(received: socket.socket, pid: int, connection: socket.socket) -> None:
    """Send the process what this one receives, until the server says how it ended, or has ended itself."""
    while True:
        ready, _, _ = select.select([received, connection], [], [])
        if connection in ready:
            return
        for number in received.recv(64):
            with suppress(ProcessLookupError):  # It has ended, and the server is about to say so.
                os.kill(pid, number)


def main() -> None:
    """Run Python with the arguments behind those of this script."""
    _, server, python, *arguments = sys.argv
    received = catch_signals()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, connection.makefile("rb") as answers:
        try:
            ask(connection, server, arguments)
            pid = int(answers.readline())
        except (OSError, ValueError):
            os.execv(python, [python, *arguments])
        pass_signals_on(received, pid, connection)
        code = int(answers.readline() or -signal.SIGKILL)  # A server that is killed takes its processes with it.
    if code >= 0:
        sys.exit(code)
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main()
