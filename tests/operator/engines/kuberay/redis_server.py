"""The Redis of the chart as a process: redis-server, started by the command of the chart's pod."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.operator.chart.charts import rendered
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import ProcessIdentity, is_running, spawn, stop_all

WITH_REDIS = {"redis": {"enabled": True}, "kuberay": {"image": "x", "redisPasswordSecret": {"name": "ours"}}}
"""Values of a chart with its own Redis, whose password is in Secret `ours`."""


@dataclass(frozen=True)
class RedisServer:
    """A running Redis."""

    port: int
    password: str
    directory: Path
    process: ProcessIdentity

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def running_redis(directory: Path, password: str, port: int = 0) -> Iterator[RedisServer]:
    """Redis with its files in the directory, by default at a free port. Skips the test if the program is missing."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server: apt-get install redis-server")
    port = port or free_ports(1)[0]
    (container,) = rendered(WITH_REDIS)["StatefulSet", "partita-redis"]["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("port 6379", f"port {port}").replace("dir /data", f"dir {directory}")
    log = directory / f"{uuid4().hex}.log"
    variables = {**os.environ, "REDISCLI_AUTH": password}
    process = spawn([*container["command"], script], log=log, environment=variables, dies_with_parent=True)
    try:
        eventually(lambda: "Ready to accept connections" in log.read_text() or not is_running(process))
        assert is_running(process), log.read_text()
        yield RedisServer(port, password, directory, process)
    finally:
        stop_all([process])
