"""A real Prometheus as a process, and its HTTP API."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import is_running, spawn, stop_all

Json = dict[str, Any]


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of a Prometheus."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the API. Fails with its error."""
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30.0, trust_env=False).json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer}"
        return answer["data"]

    def query(self, query: str) -> list[Json]:
        """The vector that a query gives now."""
        found: list[Json] = self.get("query", query=query)["result"]
        return found

    def labels_of(self, metric: str) -> list[set[str]]:
        """The labels of each present series of a metric."""
        return [{*series["metric"]} for series in self.query(f'{{__name__="{metric}"}}')]

    def targets(self) -> list[Json]:
        """The targets that are scraped."""
        found: list[Json] = self.get("targets", state="active")["activeTargets"]
        return found

    def rules(self) -> list[Json]:
        """The rules of all groups, as they were last evaluated."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def active_alerts(self) -> set[str]:
        """Names of the alerts that are pending or firing."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}


def installed_prometheus() -> str:
    """The program. Skips the test if there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus; on Debian: apt-get install prometheus")
    return program


@contextmanager
def running_prometheus(configuration: Json, directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with this configuration and an empty database."""
    (port,) = free_ports(1)
    config, log = directory / "prometheus.yaml", directory / "prometheus.log"
    config.write_text(yaml.safe_dump(configuration))
    argv = [
        installed_prometheus(),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = spawn(argv, log=log, dies_with_parent=True)
    try:
        eventually(lambda: _is_ready(port) or not is_running(process))
        assert is_running(process), f"Prometheus ended: {log.read_text()[-2000:]}"
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        stop_all([process])


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
