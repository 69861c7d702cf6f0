"""Runs functions in a container of their own image: a process (`process`) for each connection of a frontend.

    python3 DIRECTORY SOCKET, with the DIRECTORY that `delivery` has written

It is the container's first process. It kills the process of a connection that the frontend closes, which may be because
a call hangs, and closes the connection of a process that ends. It has no threads, so it may fork.
"""

import importlib.util
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Final, NoReturn

LEAST_PYTHON: Final = (3, 11)
_WAITING: Final = 64
"""Connections that may wait until they are accepted."""


class Server:
    """Accepts connections until it is told to end."""

    def __init__(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o666)  # the frontend may be another user; only containers of the pod see the socket
        self._listener.listen(_WAITING)
        self._connections: dict[int, socket.socket] = {}
        """By the process that has the other copy."""
        self._signals, self._signalled = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._signals, select.POLLIN)

    def run(self) -> None:
        """Serve until the container is stopped."""
        os.set_blocking(self._signalled, False)
        signal.set_wakeup_fd(self._signalled)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor != self._signals:
                    self._closed(descriptor)
                elif signal.SIGTERM in os.read(self._signals, 4096):
                    self._kill_all()
                    return
                else:
                    self._reap()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        process = os.fork()
        if not process:
            self._become_process(connection)
        self._connections[process] = connection
        self._poll.register(connection, 0)  # for its end only; the process reads it

    def _become_process(self, connection: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for inherited in (self._listener, *self._connections.values()):
            inherited.close()
        try:
            from partita_runtime.function_server.process import main

            main(connection)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)

    def _closed(self, descriptor: int) -> None:
        """The frontend has closed its end, or the process its own."""
        self._poll.unregister(descriptor)
        for process, connection in self._connections.items():
            if connection.fileno() == descriptor:
                os.kill(process, signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                process, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            if process in self._connections:
                with self._connections.pop(process) as connection, suppress(KeyError):
                    self._poll.unregister(connection)

    def _kill_all(self) -> None:
        for process in self._connections:
            os.kill(process, signal.SIGKILL)


def main(path: str) -> None:
    """Serve at a Unix socket. Exits with a message if the image cannot run functions."""
    if sys.version_info < LEAST_PYTHON or importlib.util.find_spec("numpy") is None:
        sys.exit("The image needs Python 3.11 or newer with numpy as python3: install numpy, or correct its PATH.")
    Server(path).run()
