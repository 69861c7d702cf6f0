"""Ray's head with a Redis that requires a password, started as KubeRay starts it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.operator.engines.kuberay.redis_server import RedisServer, running_redis
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import Marker, ProcessIdentity, is_running, spawn, stop, stop_all

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAY = Path(sys.executable).with_name("ray")
STORAGE = "uid-of-the-cluster"
HEAD = Marker("PARTITA_TEST_RAY_HEAD")
# What the command of KubeRay's Job runs.
CLEANUP = (
    "import os, sys; from ray._private.gcs_utils import cleanup_redis_storage; "
    "sys.exit(not cleanup_redis_storage(host='127.0.0.1', port={port}, password=os.environ['REDIS_PASSWORD'], "
    "use_ssl=False, storage_namespace=os.environ['RAY_external_storage_namespace']))"
)


def variables(redis: RedisServer, directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **kept,
        **HEAD.environment(directory),
        "RAY_REDIS_ADDRESS": redis.address,
        "RAY_external_storage_namespace": STORAGE,
        "REDIS_PASSWORD": redis.password,
    }


@contextmanager
def running_head(redis: RedisServer, directory: Path) -> Iterator[ProcessIdentity]:
    port, clients = free_ports(2)
    command = (
        f"exec {RAY} start --head --block --port={port} --ray-client-server-port={clients} --num-cpus=0 "
        "--include-dashboard=false --disable-usage-stats --object-store-memory=100000000 "
        f"--min-worker-port=0 --max-worker-port=0 --temp-dir={directory} --redis-password=$REDIS_PASSWORD"
    )
    head = spawn(["sh", "-c", command], log=directory / "head.log", environment=variables(redis, directory))
    try:
        yield head
    finally:
        stop(lambda: HEAD.processes(directory, [head]), grace_s=10)


def keys(redis: RedisServer) -> list[str]:
    """The keys of the Ray cluster."""
    command = ["redis-cli", "-p", str(redis.port), "keys", f"RAY{STORAGE}@*"]
    environment = {**os.environ, "REDISCLI_AUTH": redis.password}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def head_files() -> Iterator[Path]:
    """A directory with a short path: it is part of the addresses of Ray's sockets."""
    with TemporaryDirectory(prefix="ray-") as directory:
        yield Path(directory)


def test_a_head_keeps_its_state_in_the_redis_and_ends_when_the_password_changes(
    tmp_path: Path, head_files: Path
) -> None:
    pytest.importorskip("ray")
    files = tmp_path / "redis"
    with running_redis(files, "one") as before, running_head(before, head_files) as head:
        eventually(lambda: bool(keys(before)) or not is_running(head))
        assert is_running(head), (head_files / "head.log").read_text()
        stop_all([before.process])
        with running_redis(files, "two", before.port) as after:
            eventually(lambda: not is_running(head))
            assert keys(after), "the next head finds the state"

            job = [sys.executable, "-c", CLEANUP.format(port=after.port)]
            subprocess.run(job, env=variables(after, head_files), check=True, capture_output=True)
            assert keys(after) == []
