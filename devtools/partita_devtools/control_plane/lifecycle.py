"""etcd, kube-apiserver and kube-controller-manager as plain processes on the loopback interface.

Authentication and RBAC are real, service-account tokens are signed with a separate key, Jobs get their pods and owned
objects are garbage-collected. There are no nodes, so nothing runs the pods.

The state directory contains everything of one control plane: keys, etcd's data, logs, and `control-plane.json` with
ports, processes and the administrator's token.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import ssl
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from os import environ
from pathlib import Path

from partita_devtools.control_plane.binaries import Binaries, find_binaries
from partita_devtools.control_plane.commands import API_SERVICE_ADDRESS, Ports, StateFiles, command
from partita_devtools.control_plane.releases import API_SERVER, CONTROLLER_MANAGER, ETCD
from partita_devtools.control_plane.state import ControlPlaneState
from partita_devtools.control_plane.webhook_clients import write_webhook_client
from partita_devtools.errors import DevError
from partita_devtools.machine.certificates import (
    KeyPair,
    create_authority,
    create_signing_key,
    issue_server_certificate,
)
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked, write_private
from partita_devtools.machine.kubeconfig import write_kubeconfig
from partita_devtools.machine.ports import free_ports, is_free, same_or_free_port
from partita_devtools.machine.processes import Marker, ProcessIdentity, is_running, send, spawn, stop, stop_all
from partita_devtools.machine.programs import LoggedProgram

_PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
_START_TIMEOUT_S = 120.0
MARKER = Marker("PARTITA_DEV_CONTROL_PLANE")


@dataclass(frozen=True)
class ControlPlane:
    """A control plane, running or not, known by its state directory (an absolute path).

    `start_control_plane`, `control_plane` and `load_control_plane` give one.
    """

    state_dir: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file (user `partita-admin` in group `system:masters`)."""
        return self.state_dir / "kubeconfig"

    @property
    def authority(self) -> KeyPair:
        """The certificate authority of the API server; it may sign further loopback servers."""
        return KeyPair(self.state_dir / "pki/ca.crt", self.state_dir / "pki/ca.key")

    @property
    def url(self) -> str:
        """The API server's base URL, without a slash at its end."""
        return f"https://127.0.0.1:{self._state().ports.api_server}"

    @property
    def etcd_url(self) -> str:
        """etcd's base URL, without a slash at its end; it needs no credentials."""
        return f"http://127.0.0.1:{self._state().ports.etcd_client}"

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self._state().token

    @property
    def audit_log(self) -> Path:
        """The requests of the audited users: one JSON object of kind Event (audit.k8s.io/v1) a line."""
        return StateFiles(self.state_dir).audit_log

    @property
    def binaries(self) -> Binaries:
        """The programs that it was started from."""
        return self._state().binaries

    @property
    def processes(self) -> dict[str, ProcessIdentity]:
        """The processes started last, by program name, whether or not they still run."""
        return self._state().processes

    def is_running(self) -> bool:
        """Whether all three processes run; they may not answer yet."""
        return not self.ended()

    def ended(self) -> list[LoggedProgram]:
        """The programs that do not run."""
        processes = self.processes
        return [self._program(n) for n in _PROGRAMS if n not in processes or not is_running(processes[n])]

    def running_processes(self) -> set[ProcessIdentity]:
        """Its processes, with or without a record of them."""
        return set().union(*map(self._processes_of, _PROGRAMS))

    def health(self) -> dict[str, str]:
        """For each program `ok`, `not running`, or how its health endpoint failed."""
        processes = self.processes
        return {
            name: self._probe(name) if name in processes and is_running(processes[name]) else "not running"
            for name in _PROGRAMS
        }

    def pause_api_server(self) -> None:
        """Freeze the API server: it accepts connections, but does not answer."""
        send(self.processes[API_SERVER], signal.SIGSTOP)

    def resume_api_server(self) -> None:
        """Resume a paused API server; returns once it answers."""
        send(self.processes[API_SERVER], signal.SIGCONT)
        self._wait_for(API_SERVER)

    def kill_api_server(self) -> None:
        """Kill the API server with SIGKILL; etcd and the controller manager run on."""
        stop_all([self.processes[API_SERVER]], grace_s=0.0)

    def restart_api_server(self) -> None:
        """Start the API server again on the same port and data, killing it first if it runs."""
        self.kill_api_server()
        self._launch(API_SERVER)
        self._wait_for(API_SERVER)

    def start_programs(self, report: Report) -> None:
        """Start all programs of the recorded state, one after the other; returns once they are healthy."""
        for name in _PROGRAMS:
            report(f"starting {name} (log: {self._log(name)})")
            self._launch(name)
            self._wait_for(name)

    def stop_controller_manager(self) -> None:
        """Stop the controller manager, so that it does not recreate deleted objects."""
        stop(partial(self._processes_of, CONTROLLER_MANAGER))

    def stop(self) -> None:
        """Stop its processes, with or without a record of them. The data stays for a later start. Idempotent."""
        for name in reversed(_PROGRAMS):
            stop(partial(self._processes_of, name))
        if (state := ControlPlaneState.read(self.state_dir)) is not None:
            replace(state, processes={}).write(self.state_dir)

    def _state(self) -> ControlPlaneState:
        state = ControlPlaneState.read(self.state_dir)
        if state is None:
            command = shlex.join(["partita", "dev", "up", "--state-dir", str(self.state_dir)])
            raise DevError(f"no control plane was started in {self.state_dir}; start one: {command}")
        return state

    def _log(self, name: str) -> Path:
        return self.state_dir / "logs" / f"{name}.log"

    def _launch(self, name: str) -> None:
        state = self._state()
        process = spawn(
            command(name, state.binaries, state.ports, StateFiles(self.state_dir)),
            log=self._log(name),
            environment={**environ, **MARKER.environment(self.state_dir, name)},
            dies_with_parent=state.dies_with_parent,
        )
        try:
            replace(state, processes={**state.processes, name: process}).write(self.state_dir)
        except BaseException:
            stop_all([process])
            raise

    def _program(self, name: str) -> LoggedProgram:
        return LoggedProgram(name, self._log(name))

    def _processes_of(self, name: str) -> set[ProcessIdentity]:
        state = ControlPlaneState.read(self.state_dir)
        recorded = None if state is None else state.processes.get(name)
        return MARKER.processes(self.state_dir, filter(None, [recorded]), name)

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        process = self.processes[name]
        while (answer := self._probe(name)) != "ok":
            ended = not is_running(process)
            if ended or time.monotonic() > deadline:
                what = "ended" if ended else f"is not healthy after {_START_TIMEOUT_S:.0f} s ({answer})"
                raise DevError(self._program(name).problem(what))
            time.sleep(0.1)

    def _probe(self, name: str) -> str:
        ports = self._state().ports
        if name == ETCD:
            return self._get(f"{self.etcd_url}/health")
        if name == API_SERVER:
            return self._get(f"{self.url}/readyz")
        health = self._get(f"https://127.0.0.1:{ports.controller_manager}/healthz")
        # The default service account exists once the controllers work.
        account = f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        return self._get(account) if health == "ok" else health

    def _get(self, url: str) -> str:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        try:
            with urllib.request.urlopen(request, timeout=5.0, context=context):
                return "ok"
        except (OSError, HTTPException) as error:
            return str(error)


def start_control_plane(
    state_dir: Path,
    *,
    binaries: Binaries,
    report: Report,
    api_server_port: int | None = None,
    dies_with_parent: bool = False,
    audited_users: Sequence[str] = (),
    undo: ExitStack | None = None,
) -> ControlPlane:
    """Start a control plane in `state_dir` and wait until it serves; one that runs already is returned.

    A stopped one starts with its data, its credentials and, if it is still free, its port.
    `api_server_port` is the port on 127.0.0.1 (default: a free one). With `dies_with_parent` the
    processes end when this one does; otherwise they survive the caller. The requests of
    `audited_users` are written to the audit log. `undo` receives what stops the control plane,
    if this call starts it.
    Raises DevError, with the end of the log concerned, if it does not come up; nothing runs then.
    """
    plane = ControlPlane(state_dir.absolute())
    with locked(plane.state_dir / "control-plane.lock", report=report, purpose="start a control plane"):
        previous = ControlPlaneState.read(plane.state_dir)
        if previous is not None and plane.is_running():
            return plane
        if plane.running_processes():
            report("stopping what still runs of an earlier control plane")
        plane.stop()
        started = time.monotonic()
        _write_audit_policy(StateFiles(plane.state_dir), audited_users)
        _prepare(plane, previous, binaries, api_server_port, dies_with_parent, report).write(plane.state_dir)
        if undo is not None:
            undo.callback(plane.stop)
        try:
            plane.start_programs(report)
        except BaseException:
            plane.stop()
            raise
        report(f"Kubernetes serves at {plane.url} after {time.monotonic() - started:.1f} s")
        return plane


def load_control_plane(state_dir: Path) -> ControlPlane | None:
    """The control plane that was started in `state_dir`, running or not; None if there never was one."""
    plane = ControlPlane(state_dir.absolute())
    return plane if ControlPlaneState.read(plane.state_dir) is not None else None


@contextmanager
def control_plane(
    state_dir: Path,
    *,
    binaries: Binaries | None = None,
    report: Report = print,
    audited_users: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """A control plane for the duration of a `with` block; it always ends with this process.

    The requests of `audited_users` are written to its audit log.
    """
    plane = start_control_plane(
        state_dir,
        binaries=binaries or find_binaries(report=report),
        report=report,
        dies_with_parent=True,
        audited_users=audited_users,
    )
    try:
        yield plane
    finally:
        plane.stop()


def _prepare(
    plane: ControlPlane,
    previous: ControlPlaneState | None,
    binaries: Binaries,
    api_server_port: int | None,
    dies_with_parent: bool,
    report: Report,
) -> ControlPlaneState:
    """Write the programs' files, and return the state to start them with."""
    files = StateFiles(plane.state_dir)
    if previous is None:
        create_authority(files.pki)
        create_signing_key(files.service_account_key)
        issue_server_certificate(plane.authority, files.pki, API_SERVER, API_SERVICE_ADDRESS)
        issue_server_certificate(plane.authority, files.pki, CONTROLLER_MANAGER)
    write_webhook_client(plane.authority, files)
    admin_token = previous.token if previous is not None else secrets.token_hex(16)
    controller_token = secrets.token_hex(16)
    write_private(
        files.tokens,
        f'{admin_token},partita-admin,partita-admin,"system:masters"\n'
        f"{controller_token},system:kube-controller-manager,kube-controller-manager\n".encode(),
    )
    ports = _choose_ports(previous.ports if previous is not None else None, api_server_port, report)
    url = f"https://127.0.0.1:{ports.api_server}"
    write_kubeconfig(plane.kubeconfig, url, plane.authority.certificate, admin_token)
    write_kubeconfig(files.controller_manager_kubeconfig, url, plane.authority.certificate, controller_token)
    return ControlPlaneState(
        ports=ports,
        binaries=binaries,
        token=admin_token,
        dies_with_parent=dies_with_parent,
        processes={},
    )


def _write_audit_policy(files: StateFiles, users: Sequence[str]) -> None:
    if not users:
        files.audit_policy.unlink(missing_ok=True)
        return
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(users)}, {"level": "None"}],
    }
    write_private(files.audit_policy, json.dumps(policy).encode())


def _choose_ports(previous: Ports | None, api_server_port: int | None, report: Report) -> Ports:
    ports = Ports(*free_ports(4))
    if api_server_port is not None:
        if not is_free(api_server_port):
            raise DevError(f"port {api_server_port} is taken; give another port for the API server")
        return replace(ports, api_server=api_server_port)
    if previous is not None:
        return replace(ports, api_server=same_or_free_port(previous.api_server, "API server", report))
    return ports
