"""Logs of local mode: the operator's, and those of a session's frontends and replicas on Ray."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.operator_process import operator_log
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH

_POLL_S: Final = 0.5
_MARKS: Final = (":job_id:", ":actor_name:", ":task_name:")
"""Lines of Ray's own that begin a process's output."""


@dataclass(frozen=True)
class LogFile:
    """A file, and what to call it."""

    label: str
    path: Path


def log_files(environment: DevEnvironment, session_key: str | None) -> Sequence[LogFile]:
    """The operator's log; with a session (namespace/name), also those of its frontends and replicas that run now.

    Raises DevError if Ray does not answer.
    """
    found = [LogFile("operator", operator_log(environment.state_dir))]
    if session_key is not None:
        prefix = f"partita.{session_key.replace('/', '.')}."
        applications = environment.ray.get(APPLICATIONS_PATH)["applications"]
        for name, application in sorted(applications.items()):
            if name.startswith(prefix):
                found += _of_application(name.removeprefix(prefix), application, environment.ray.logs)
        if len(found) == 1:
            raise DevError(f"session {session_key} has no frontends and replicas now; its conditions say why")
    return [file for file in found if file.path.exists()]


def read_logs(files: Sequence[LogFile], lines: int, contains: str) -> Iterator[str]:
    """The last lines of each file that contain a text, each after the file's label."""
    for file in files:
        text = file.path.read_text(encoding="utf-8", errors="replace").splitlines()
        matching = [line for line in text if contains in line and not line.startswith(_MARKS)]
        yield from (f"{file.label}: {line}" for line in matching[-lines:])


def follow(files: Sequence[LogFile], contains: str) -> Iterator[str]:
    """Lines that are written from now on; endless."""
    opened = [(file.label, file.path.open(encoding="utf-8", errors="replace")) for file in files]
    for _, stream in opened:
        stream.seek(0, 2)
    while True:
        quiet = True
        for label, stream in opened:
            for line in stream:
                quiet = False
                if contains in line and not line.startswith(_MARKS):
                    yield f"{label}: {line.rstrip()}"
        if quiet:
            time.sleep(_POLL_S)


def _of_application(name: str, application: dict[str, Any], logs: Path) -> Iterator[LogFile]:
    """Serve's log of each replica, and the output of its process."""
    for deployment in application["deployments"].values():
        for replica in deployment["replicas"]:
            label = f"{name}/{replica['replica_id']}"
            if replica.get("log_file_path"):
                yield LogFile(label, logs / replica["log_file_path"].lstrip("/"))
            for path in sorted(logs.glob(f"worker-{replica.get('worker_id')}-*")):
                yield LogFile(label, path)
