"""The operator as a background process of a development environment.

`operator.json` in the state directory records it; its log is `logs/operator.log`.
"""

from __future__ import annotations

import shlex
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from os import environ
from pathlib import Path

from partita_devtools.definitions import install_definitions
from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked, read_record, write_record
from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import Marker, ProcessIdentity, is_running, spawn, stop
from partita_devtools.machine.programs import LoggedProgram

_START_TIMEOUT_S = 180.0
MARKER = Marker("PARTITA_DEV_OPERATOR")


@dataclass(frozen=True)
class _StartedOperator:
    """What is recorded about the operator."""

    process: ProcessIdentity
    health_port: int
    ray_token: str
    """Of the Ray cluster that it uses; every start of Ray has another one, and other ports."""


def start_operator(
    environment: DevEnvironment,
    report: Report,
    settings: Mapping[str, str] | None = None,
    *,
    dies_with_parent: bool = False,
    undo: ExitStack | None = None,
) -> None:
    """Install the CustomResourceDefinitions, then start the operator as `launch_operator` does."""
    if not operator_running(environment.state_dir):
        report("installing the CustomResourceDefinitions")
        install_definitions(environment.kubeconfig)
    launch_operator(environment, report, settings, dies_with_parent=dies_with_parent, undo=undo)


def launch_operator(
    environment: DevEnvironment,
    report: Report,
    settings: Mapping[str, str] | None = None,
    *,
    dies_with_parent: bool = False,
    again: str | None = None,
    undo: ExitStack | None = None,
) -> None:
    """Start the operator on the environment's Kubernetes and Ray; one that runs already is left as it is.

    `settings` are further environment variables (PARTITA_OPERATOR__*). With `dies_with_parent` the operator ends when
    this process does. Returns when it is healthy; raises DevError with the end of its log, and what to do next,
    if it is not in time. `again` is the command that the error proposes for another attempt.
    `undo` receives what stops the operator, if this call starts it.
    """
    state_dir = environment.state_dir
    with locked(state_dir / "operator.lock", report=report, purpose="start the operator"):
        earlier = read_record(_record(state_dir), _StartedOperator)
        if earlier is not None and is_running(earlier.process):
            if earlier.ray_token == environment.ray.auth_token:
                report("the operator runs already")
                return
            report("stopping the operator: it uses a Ray cluster that is gone")
        elif _running_processes(state_dir):
            report("stopping what still runs of an earlier operator")
        stop_operator(state_dir)
        if undo is not None:
            undo.callback(stop_operator, state_dir)
        _launch(environment, report, settings or {}, dies_with_parent=dies_with_parent, again=again)


def _launch(
    environment: DevEnvironment,
    report: Report,
    settings: Mapping[str, str],
    *,
    dies_with_parent: bool,
    again: str | None,
) -> None:
    state_dir = environment.state_dir
    health_port, metrics_port = free_ports(2)
    log = operator_log(state_dir)
    ray = environment.ray
    report(f"starting the operator (log: {log})")
    process = spawn(
        [sys.executable, "-m", "partita_operator", "operator", "run"],
        log=log,
        environment={
            **environ,
            **ray.config.environment,
            "KUBECONFIG": str(environment.kubeconfig),
            "PARTITA_OPERATOR__RAY__ADDRESS": ray.dashboard_url,
            "PARTITA_OPERATOR__RAY__TOKEN": ray.auth_token,
            "PARTITA_OPERATOR__RAY__SERVE_URL": ray.serve_url,
            "PARTITA_OPERATOR__RAY__SERVE_HTTP_PORT": str(ray.serve_http_port),
            "PARTITA_OPERATOR__HEALTH__PORT": str(health_port),
            "PARTITA_OPERATOR__METRICS__PORT": str(metrics_port),
            **settings,
            **MARKER.environment(state_dir),
        },
        dies_with_parent=dies_with_parent,
    )
    write_record(_record(state_dir), _StartedOperator(process, health_port, ray.auth_token))
    try:
        _wait_until_healthy(process, health_port, state_dir, again)
    except BaseException:
        stop_operator(state_dir)
        raise


def stop_operator(state_dir: Path, *, grace_s: float = 10.0) -> None:
    """Stop the operator and its solver processes, with or without a record of them; idempotent.

    After `grace_s` seconds it is killed.
    """
    stop(lambda: _running_processes(state_dir), grace_s=grace_s)
    _record(state_dir).unlink(missing_ok=True)


def operator_running(state_dir: Path) -> bool:
    """Whether the operator that `start_operator` started runs."""
    process = _process(state_dir)
    return process is not None and is_running(process)


def operator_log(state_dir: Path) -> Path:
    """The file with the operator's output."""
    return state_dir / "logs" / "operator.log"


def ended_operator(state_dir: Path) -> list[LoggedProgram]:
    """The operator, if it does not run."""
    return [] if operator_running(state_dir) else [_program(state_dir)]


def _program(state_dir: Path) -> LoggedProgram:
    return LoggedProgram("the operator", operator_log(state_dir))


def _record(state_dir: Path) -> Path:
    return state_dir / "operator.json"


def _process(state_dir: Path) -> ProcessIdentity | None:
    record = read_record(_record(state_dir), _StartedOperator)
    return None if record is None else record.process


def _running_processes(state_dir: Path) -> set[ProcessIdentity]:
    return MARKER.processes(state_dir, filter(None, [_process(state_dir)]))


def _wait_until_healthy(process: ProcessIdentity, health_port: int, state_dir: Path, again: str | None) -> None:
    """Raises DevError if the process ends, or is not healthy within a minute."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _healthy(health_port):
        if not is_running(process) or time.monotonic() > deadline:
            up = again or shlex.join(["partita", "dev", "up", "--operator", "--state-dir", str(state_dir)])
            status = shlex.join(["partita", "dev", "status", "--state-dir", str(state_dir)])
            raise DevError(
                f"{_program(state_dir).problem('did not start')}\n"
                f"Check the cluster and Ray: {status}\nThen start the operator again: {up}"
            )
        time.sleep(0.2)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
