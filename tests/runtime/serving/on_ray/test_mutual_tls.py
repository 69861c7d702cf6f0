"""A session whose processes connect by mutual TLS, on a real Ray cluster, also while the certificate changes.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.serving.on_ray.deployment import OPTIONS, Deployment, Loading
from tests.runtime.serving.plans import application
from tests.runtime.serving.transport.authority import NAME, Authority, client_context, write

from partita_api.session.frontend import Frontend
from partita_runtime.serving.coordinator_actors import coordinator_name
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, TlsFiles

pytestmark = pytest.mark.ray

ENCRYPTED = replace(application("encrypted").model("only"), stages=2, replicas=2, slo_ms=20_000).with_spec(
    frontend=Frontend(replicas=2)
)
"""Two frontends, with a coordinator, and two stages."""
OLD, NEW = Authority.new(), Authority.new()


@dataclass(frozen=True)
class Encrypted:
    """The deployed session, and the files that all its processes read."""

    deployment: Deployment
    files: TlsFiles

    def stages(self) -> list[dict[str, Any]]:
        return [r for r in self.deployment.replicas() if f".{ENCRYPTED.name}.plan-" in r["application"]]

    def coordinator(self) -> int:
        """The process of the coordinator that the frontends use, 0 while there is none."""
        return int(self.deployment.actor(coordinator_name(ENCRYPTED.session.key, 0, self.files))["pid"])

    def is_replaced(self, victim: int) -> bool:
        there = {stage.get("pid") for stage in self.stages()}
        return victim not in there and self.deployment.ready_replicas(ENCRYPTED) == [2, 2]


@pytest.fixture(scope="module")
def encrypted(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    files = write(tmp_path_factory.mktemp("transport"), [OLD], OLD.issue())
    deployment.deploy(ENCRYPTED, options=OPTIONS.model_copy(update={"tls": files}))
    deployment.until(lambda: deployment.ready_replicas(ENCRYPTED) == [2, 2], "all replicas have joined")
    yield Encrypted(deployment, files)
    deployment.remove(lambda name: f".{ENCRYPTED.name}." in name)


def tls_ports(process: int, files: TlsFiles) -> list[int]:
    """The ports where a process shows the certificate of the session."""
    context = client_context(files)
    context.load_verify_locations(Path(files.directory) / AUTHORITIES_FILE)
    context.verify_mode, context.check_hostname = ssl.CERT_REQUIRED, True
    found = []
    for host, port in listening(process):
        try:
            with (
                socket.create_connection((host, port), timeout=10) as connection,
                context.wrap_socket(connection, server_hostname=NAME),
            ):
                found.append(port)
        except OSError:
            continue  # a port of Ray
    return found


def listening(process: int) -> list[tuple[str, int]]:
    """Where a process listens, by TCP."""
    own = {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
    places = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    return [(socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)) for host, port in places]


def test_replicas_and_coordinators_listen_by_tls(encrypted: Encrypted) -> None:
    loading = Loading(encrypted.deployment, ENCRYPTED, rate=20)
    encrypted.deployment.until(lambda: loading.sent() >= 20, "requests are answered")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
    processes = [encrypted.coordinator(), *(stage["pid"] for stage in encrypted.stages())]
    assert [len(tls_ports(process, encrypted.files)) for process in processes] == [1] * 5


def test_a_change_of_the_authority_loses_no_request(encrypted: Encrypted) -> None:
    """A process is replaced after each step, and connects with what the files have then."""
    deployment, directory = encrypted.deployment, Path(encrypted.files.directory)
    loading = Loading(deployment, ENCRYPTED, rate=20)
    deployment.until(lambda: loading.sent() >= 20, "load is on")
    before, after = OLD.issue(), NEW.issue()
    for trusted, own in (((OLD, NEW), before), ((OLD, NEW), after), ((NEW,), after)):
        write(directory, trusted, own)
        victim = encrypted.stages()[-1]["pid"]
        os.kill(victim, signal.SIGKILL)
        deployment.until(lambda victim=victim: encrypted.is_replaced(victim), "the replica is replaced")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
    assert [len(tls_ports(stage["pid"], encrypted.files)) for stage in encrypted.stages()] == [1] * 4
