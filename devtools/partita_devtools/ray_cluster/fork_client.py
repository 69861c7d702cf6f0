"""Asks a fork server to run Python with these arguments; runs Python itself where no server answers.

Ray's raylet runs it as a script, with nothing but the standard library, in place of each worker:
`python -I -S fork_client.py SERVER PYTHON ARGUMENTS...`.
"""

import json
import os
import socket
import sys

FORKED = b"forked"
"""What the server answers once the worker runs."""


def ask(server: str, arguments: list[str]) -> bool:
    """Whether the server has started a process with these arguments and this one's directory, environment and files."""
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(server)
            socket.send_fds(connection, [b"\n"], [0, 1, 2])
            connection.sendall(json.dumps(request).encode())
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(len(FORKED)) == FORKED
    except OSError:
        return False


if __name__ == "__main__":
    _, server, python, *arguments = sys.argv
    if not ask(server, arguments):
        os.execv(python, [python, *arguments])
