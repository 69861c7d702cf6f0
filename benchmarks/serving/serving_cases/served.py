"""Starts and inspects Serve applications on a local Ray cluster by Serve's REST interface."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.deploy.monitoring_access import authorization, token_digest

READY_SECONDS = 120.0
_MONITORING_TOKEN = "token-of-the-benchmarks"


def python_path() -> str:
    """PYTHONPATH by which the cluster's processes import what this one does, and the benchmarks."""
    return os.pathsep.join([str(Path(__file__).parents[3]), *(entry for entry in sys.path if entry)])


def compiled_runtime(checkout: Path, folder: Path) -> Path:
    """A copy of a checkout's runtime in `folder`, compiled: what to have in PYTHONPATH before the checkout's own.

    Takes about a minute of CPU. Ends the program if nothing can be compiled here.
    """
    if shutil.which("cc") is None or find_spec("mypyc") is None:
        raise SystemExit("the core cannot be compiled here: install a C compiler and mypy[mypyc], or add --interpreted")
    runtime = checkout / "runtime"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(runtime / "partita_runtime", folder / "partita_runtime", ignore=ignored)
    command = [sys.executable, str(runtime / "compile_core.py"), "--into", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the core was not compiled; add --interpreted: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return folder


def put(cluster: RayCluster, applications: list[dict[str, Any]]) -> None:
    """Make these the applications of the cluster, and no others."""
    deploy(cluster, {"applications": applications})


def runs(cluster: RayCluster, applications: list[dict[str, Any]]) -> bool:
    """Whether these applications run with all replicas, and no others do; False while Serve does not say."""
    try:
        found = cluster.get(APPLICATIONS_PATH)["applications"]
    except DevError:
        return False
    return found.keys() == {application["name"] for application in applications} and all(
        deployment["status"] == "HEALTHY" and len(deployment["replicas"]) == deployment["target_num_replicas"]
        for application in found.values()
        for deployment in application["deployments"].values() or [{"status": "", "replicas": ()}]
    )


def replicas(cluster: RayCluster) -> list[dict[str, Any]]:
    """All replicas, as Serve describes them, each with its application's name. Raises DevError if it does not say."""
    return [
        {**replica, "application": name}
        for name, application in cluster.get(APPLICATIONS_PATH)["applications"].items()
        for deployment in application["deployments"].values()
        for replica in deployment["replicas"]
    ]


def monitored(options: ServingOptions) -> ServingOptions:
    """The options for frontends whose measurements `measurements` reads."""
    return options.model_copy(update={"monitoring_digest": token_digest(_MONITORING_TOKEN)})


def measurements(url: str, kind: str = "signals") -> httpx.Response:
    """The `signals` or `metrics` of the session at this URL. Raises httpx.HTTPError if no frontend answers."""
    return httpx.get(f"{url}/partita/{kind}", headers=authorization(_MONITORING_TOKEN), timeout=10)


def base_url(cluster: RayCluster) -> str:
    """Where Serve's proxy answers."""
    return f"http://127.0.0.1:{cluster.serve_http_port}"


def await_until(reached: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
    """Ask twice a second until `reached()`; ends the program, saying `what` did not come, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"within {seconds:.0f} s: not yet {what}")
        time.sleep(0.5)
