"""The API server as a background process, known by its state directory; `api-server.json` there records it."""

from __future__ import annotations

import secrets
import ssl
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from os import environ
from pathlib import Path
from typing import Final

from partita_devtools.errors import DevError
from partita_devtools.machine.certificates import issue_server_certificate, load_or_create_authority
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked, read_record, write_record
from partita_devtools.machine.kubeconfig import write_kubeconfig
from partita_devtools.machine.ports import same_or_free_port
from partita_devtools.machine.processes import Marker, ProcessIdentity, is_running, spawn, stop
from partita_devtools.machine.programs import LoggedProgram

TOKEN_VARIABLE: Final = "PARTITA_API_SERVER_TOKEN"
_START_TIMEOUT_S: Final = 60.0
MARKER: Final = Marker("PARTITA_DEV_API_SERVER")


@dataclass(frozen=True)
class _StartedServer:
    """What is recorded about the API server."""

    process: ProcessIdentity
    port: int
    token: str


@dataclass(frozen=True)
class EmbeddedApiServer:
    """An API server, running or not, known by its state directory (an absolute path)."""

    state_dir: Path

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of its only user."""
        return self.state_dir / "kubeconfig"

    @property
    def objects(self) -> Path:
        """The directory of the objects' files."""
        return self.state_dir / "objects"

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.state_dir / "logs" / "api-server.log"

    def is_running(self) -> bool:
        """Whether the process runs; it may not answer yet."""
        process = self._process()
        return process is not None and is_running(process)

    def health(self) -> str:
        """`ok`, `not running`, or how its health endpoint failed."""
        record = self._state()
        if record is None or not self.is_running():
            return "not running"
        try:
            context = ssl.create_default_context(cafile=str(self.state_dir / "pki" / "ca.crt"))
            with urllib.request.urlopen(f"https://127.0.0.1:{record.port}/readyz", timeout=5.0, context=context):
                return "ok"
        except (OSError, HTTPException) as error:
            return str(error)

    def running_processes(self) -> set[ProcessIdentity]:
        """The process, with or without a record of it."""
        return MARKER.processes(self.state_dir, filter(None, [self._process()]))

    def ended(self) -> list[LoggedProgram]:
        """The process, if it does not run."""
        return [] if self.is_running() else [self._program]

    def stop(self) -> None:
        """Stop the process, with or without a record of it; the objects stay. Idempotent."""
        stop(self.running_processes)

    def _process(self) -> ProcessIdentity | None:
        record = self._state()
        return None if record is None else record.process

    def _state(self) -> _StartedServer | None:
        return read_record(self._record, _StartedServer)

    @property
    def _program(self) -> LoggedProgram:
        return LoggedProgram("the API server", self.log)

    @property
    def _record(self) -> Path:
        return self.state_dir / "api-server.json"

    def launch(self, report: Report, *, dies_with_parent: bool) -> None:
        """Start the process, on its earlier port if that is free, and wait until it answers. Raises DevError."""
        earlier = self._state()
        port = same_or_free_port(None if earlier is None else earlier.port, "API server", report)
        token = secrets.token_hex(16) if earlier is None else earlier.token
        authority = load_or_create_authority(self.state_dir / "pki")
        server = issue_server_certificate(authority, self.state_dir / "pki", "embedded-api-server")
        write_kubeconfig(self.kubeconfig, f"https://127.0.0.1:{port}", authority.certificate, token)
        process = spawn(
            [
                *(sys.executable, "-m", "partita_devtools.api_server"),
                *(str(self.objects), str(port), str(server.certificate), str(server.key)),
            ],
            log=self.log,
            environment={**environ, **MARKER.environment(self.state_dir), TOKEN_VARIABLE: token},
            dies_with_parent=dies_with_parent,
        )
        try:
            write_record(self._record, _StartedServer(process, port, token))
            self._wait_until_healthy(process)
        except BaseException:
            self.stop()
            raise

    def _wait_until_healthy(self, process: ProcessIdentity) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while (answer := self.health()) != "ok":
            if not is_running(process) or time.monotonic() > deadline:
                raise DevError(self._program.problem(f"did not start ({answer})"))
            time.sleep(0.05)


def start_api_server(
    state_dir: Path, *, report: Report, dies_with_parent: bool = False, undo: ExitStack | None = None
) -> EmbeddedApiServer:
    """Start an API server with the objects in `state_dir`; one that runs already is returned. Raises DevError.

    `undo` receives what stops the API server, if this call starts it.
    """
    server = EmbeddedApiServer(state_dir.absolute())
    with locked(server.state_dir / "api-server.lock", report=report, purpose="start the API server"):
        if not server.is_running():
            if server.running_processes():
                report("stopping what still runs of an earlier API server")
            server.stop()
            report(f"starting the embedded API server (log: {server.log})")
            if undo is not None:
                undo.callback(server.stop)
            server.launch(report, dies_with_parent=dies_with_parent)
    return server


def load_api_server(state_dir: Path) -> EmbeddedApiServer | None:
    """The API server that was started in `state_dir`, running or not; None if there never was one."""
    server = EmbeddedApiServer(state_dir.absolute())
    return server if (server.state_dir / "api-server.json").exists() else None
