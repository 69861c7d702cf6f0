"""Versions of Partita with packages of their own: this one, and an earlier one from the history of the repository."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest
from tests.operator.kubectl import Json
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import Marker, is_running, spawn, stop

ROOT: Final = Path(__file__).resolve().parents[2]
EARLIER: Final = "PARTITA_UPGRADE_FROM"
"""The environment variable that names the commit or tag of the earlier version."""
LEASE: Final = {
    "PARTITA_OPERATOR__LEADER_ELECTION__NAMESPACE": "default",
    "PARTITA_OPERATOR__LEADER_ELECTION__NAME": "partita",
}
_OPERATOR: Final = Marker("PARTITA_TEST_OPERATOR")
_OF_MAKE: Final = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV", "VIRTUAL_ENV"}
"""Variables of the `make` that runs the tests."""
_RAY: Final = """
import json, sys
from pathlib import Path
from partita_api.gpupool import GPUPool
from partita_devtools.ray_cluster.cluster import ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig

pools = [GPUPool.model_validate(pool) for pool in json.loads(sys.argv[2])]
config = RayClusterConfig(nodes=tuple(RayClassNode.of_pool(pool) for pool in pools))
with ray_cluster(Path(sys.argv[1]), config, report=lambda line: print(line, file=sys.stderr)) as ray:
    print(json.dumps([ray.dashboard_url, ray.auth_token, ray.serve_http_port]), flush=True)
    sys.stdin.read()
"""
"""A Ray cluster until the end of the program's input, which also comes when the test is killed."""


@dataclass(frozen=True)
class Ray:
    """A running Ray cluster."""

    dashboard: str
    token: str
    serve_port: int

    def applications(self) -> dict[str, Json]:
        """What Ray Serve says of its applications, by name."""
        url = f"{self.dashboard}/api/serve/applications/"
        with urlopen(Request(url, headers={"Authorization": f"Bearer {self.token}"}), timeout=30) as answer:
            found: dict[str, Json] = json.load(answer)["applications"]
        return found


@dataclass(frozen=True)
class Version:
    """A checkout with its virtual environment."""

    name: str
    checkout: Path
    programs: Path
    """The folder with `python` and `partita`."""

    @property
    def definitions(self) -> Path:
        """Its CustomResourceDefinitions."""
        return self.checkout / "charts/partita/crds"

    @contextmanager
    def ray(self, state_dir: Path, pools: Sequence[Json]) -> Iterator[Ray]:
        """A Ray cluster with these GPUPools, whose processes have the packages of this version, Ray's among them.

        Only what starts its nodes, and the models of the tests, are those of the version that runs the tests.
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{ROOT}/devtools", str(ROOT)])}
        command = [self.programs / "python", "-c", _RAY, state_dir, json.dumps(pools)]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line, f"Ray of {self.name} did not start; see {state_dir}"
            yield Ray(*json.loads(line))

    @contextmanager
    def operator(self, state_dir: Path, kubeconfig: Path, ray: Ray, settings: Mapping[str, str]) -> Iterator[None]:
        """Its operator, healthy; it works once it has the Lease. At the end it gets SIGTERM, as from Kubernetes."""
        health, metrics = free_ports(2)
        log = state_dir / "operator.log"
        process = spawn(
            [str(self.programs / "partita"), "operator", "run"],
            log=log,
            environment={
                **os.environ,
                "KUBECONFIG": str(kubeconfig),
                "PARTITA_OPERATOR__RAY__ADDRESS": ray.dashboard,
                "PARTITA_OPERATOR__RAY__TOKEN": ray.token,
                "PARTITA_OPERATOR__RAY__SERVE_URL": f"http://127.0.0.1:{ray.serve_port}",
                "PARTITA_OPERATOR__RAY__SERVE_HTTP_PORT": str(ray.serve_port),
                "PARTITA_OPERATOR__HEALTH__PORT": str(health),
                "PARTITA_OPERATOR__METRICS__PORT": str(metrics),
                **LEASE,
                **settings,
                **_OPERATOR.environment(state_dir),
            },
            dies_with_parent=True,
        )

        def healthy() -> bool:
            assert is_running(process), f"the operator of {self.name} has ended: {log.read_text()[-3000:]}"
            try:
                with urlopen(f"http://127.0.0.1:{health}/healthz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        try:
            eventually(healthy)
            yield
            assert is_running(process), f"the operator of {self.name} has ended: {log.read_text()[-3000:]}"
        finally:
            stop(lambda: _OPERATOR.processes(state_dir, [process]))


THIS: Final = Version("this version", ROOT, Path(sys.executable).parent)


def earlier_version() -> Version:
    """The version that PARTITA_UPGRADE_FROM names, installed in .partita/versions; skips the test without it."""
    revision = os.environ.get(EARLIER)
    if not revision:
        pytest.skip(f"{EARLIER} names no commit or tag to upgrade from")
    asked = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    commit = asked.stdout.decode().strip()
    if asked.returncode != 0:
        pytest.skip(f"no commit {revision} in the history at {ROOT}: {asked.stderr.decode().strip()}")
    checkout = ROOT / ".partita/versions" / commit
    if not (checkout / "Makefile").exists():
        archive = _git("archive", commit)
        assert archive.returncode == 0, archive.stderr.decode()
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(checkout, filter="data")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    subprocess.run(["make", "install", f"PYTHON={sys.executable}"], cwd=checkout, env=environment, check=True)
    return Version(revision, checkout, checkout / ".venv/bin")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
