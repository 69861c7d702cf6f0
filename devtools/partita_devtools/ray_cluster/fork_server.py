"""Starts Python processes of Ray as forks of a process that has imported their packages already.

Workers and profiling jobs import packages for seconds of CPU time before they do anything, and a development cluster
starts dozens of them on a few cores. The server imports neither Ray, which reads its settings from the environment when
it is imported, nor Partita, which changes under development. A client process stands for each fork. Ray's agents start
as always: they compare the pid of their parent with the raylet's.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from partita_devtools.ray_cluster import fork_client

PACKAGES = (
    "click",
    "fastapi",
    "filelock",
    "google.protobuf.json_format",
    "grpc.aio",
    "grpc_reflection.v1alpha._base",
    "httptools",
    "jsonschema",
    "msgpack",
    "multiprocessing.pool",
    "numpy",
    "opentelemetry.sdk.metrics",
    "opentelemetry.sdk.trace.export",
    "PIL.Image",
    "prometheus_client",
    "requests",
    "tqdm",
    "unittest.mock",
    "uvicorn",
    "watchfiles",
    "yaml",
)
"""What every server imports: the third-party packages of Ray, Ray Serve and Partita's runtime."""

_SETUP, _WORKER = "setup_worker.py", "default_worker.py"
"""The scripts of Ray that become workers. The first one sets up a runtime environment and executes the second one."""

_PROFILING = "partita_profiling"
"""The module that profiling jobs run."""


@dataclass(frozen=True)
class _Request:
    """A process that a client wants to run."""

    arguments: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    files: Sequence[int]
    """Its standard input, output and error, as descriptors of this process."""


@dataclass(frozen=True)
class _Fork:
    """A process that runs for a client."""

    pid: int
    ended: int
    """A descriptor that is readable once the process has ended."""
    client: socket.socket
    """Readable once the client has ended."""


def start_fork_server(directory: Path, packages: Sequence[str] = ()) -> Path:
    """Fork a server that ends with this process. Returns the program to run in place of `python`.

    The server's socket and the program are in `directory`. The server imports `packages`, too, as far as they are
    installed: modules, or names in modules as `module:name`. This process must have no other thread.
    """
    address = directory / "fork-server.sock"
    address.unlink(missing_ok=True)  # of a node that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(address))
    listener.listen(128)
    program = _write_program(directory / "python", address)
    caller_lives, held_by_caller = os.pipe()
    if os.fork() == 0:
        os.close(held_by_caller)
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # A process with threads must not fork.
        _import_installed([*PACKAGES, *packages])  # Clients wait for that, which is still quicker than an own import.
        _serve(listener, caller_lives)
    os.close(caller_lives)
    listener.close()
    return program


def _import_installed(packages: Sequence[str]) -> None:
    for package in packages:
        module, _, name = package.partition(":")
        with suppress(Exception):  # The process that uses it gets the error.
            imported = importlib.import_module(module)
            if name:
                getattr(imported, name)


def _write_program(path: Path, address: Path) -> Path:
    """A program that takes Python's arguments, and lets the server run workers and profiling jobs."""
    python, client, server = (shlex.quote(str(word)) for word in (sys.executable, fork_client.__file__, address))
    path.write_text(
        f"""#!/bin/sh
case "$1 $2" in
*/{_SETUP}\\ * | */{_WORKER}\\ * | "-m {_PROFILING}") exec {python} -I -S {client} {server} {python} "$@" ;;
*) exec {python} "$@" ;;
esac
""",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def _serve(listener: socket.socket, caller_lives: int) -> None:
    """Fork a process for each request until the process that started the server ends. Returns only in forks."""
    gc.freeze()  # Garbage collections in forks then do not copy the memory of all that is imported here.
    ends: dict[int, _Fork] = {}
    clients: dict[int, _Fork] = {}
    while True:
        ready, _, _ = select.select([listener.fileno(), caller_lives, *ends, *clients], [], [])
        if caller_lives in ready:
            os._exit(0)
        for fork in [clients.pop(descriptor) for descriptor in ready if descriptor in clients]:
            os.kill(fork.pid, signal.SIGKILL)
        for fork in [ends.pop(descriptor) for descriptor in ready if descriptor in ends]:
            clients.pop(fork.client.fileno(), None)
            _report_end(fork)
        if listener.fileno() in ready:
            client, _ = listener.accept()
            if started := _fork_for(client):
                ends[started.ended] = clients[client.fileno()] = started


def _fork_for(client: socket.socket) -> _Fork | None:
    """Start what the client wants; None if it ended before it had said so."""
    request = _receive(client)
    if request is None:
        client.close()
        return None
    pid = os.fork()
    if pid == 0:
        _become(request)
    for descriptor in request.files:
        os.close(descriptor)
    _tell(client, pid)
    return _Fork(pid, os.pidfd_open(pid), client)


def _report_end(fork: _Fork) -> None:
    """Reap the process and tell its client how it ended."""
    _, status = os.waitpid(fork.pid, 0)
    _tell(fork.client, os.waitstatus_to_exitcode(status))
    fork.client.close()
    os.close(fork.ended)


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # The client has ended.
        client.sendall(b"%d\n" % number)


def _receive(connection: socket.socket) -> _Request | None:
    """The client's request; None if the client ended before it was complete."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as stream:
        text = stream.readline()
    try:
        return _Request(files=files, **json.loads(text))
    except ValueError:
        for descriptor in files:
            os.close(descriptor)
        return None


def _become(request: _Request) -> NoReturn:
    """Run the requested process in this one. Ends like a Python program: by SystemExit or another exception."""
    os.setsid()
    for number, descriptor in enumerate(request.files):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    arguments = request.arguments
    if arguments[0].endswith(_SETUP):
        arguments = _set_up(arguments)
    search = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path[:1] = [request.directory, *search]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif not arguments[0].startswith("-"):
        sys.argv = list(arguments)
        sys.path[:1] = [os.path.dirname(sys.argv[0]), *search]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.exit()


def _set_up(arguments: Sequence[str]) -> Sequence[str]:
    """Set up the runtime environment that the arguments of Ray's script name. Returns the arguments for Python.

    An environment of more than variables is left to Ray, which starts Python again for it.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", dest="context", type=json.loads, default={})
    parser.add_argument("--language")
    options, rest = parser.parse_known_args(arguments[1:])
    variables = options.context.pop("env_vars", {})
    usual = {"py_executable": sys.executable}
    special = any(value and value != usual.get(field) for field, value in options.context.items())
    if special or options.language != "PYTHON" or any("$" in value for value in variables.values()):
        os.execv(sys.executable, [sys.executable, *arguments])
    os.environ.update(variables)
    return rest
