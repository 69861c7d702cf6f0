"""kubectl against a test's namespace, and waiting with a deadline."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from tests import patience
from tests.patience import PATIENCE_SECONDS

from partita_api.crd_schema import KINDS, crd
from partita_devtools.control_plane.lifecycle import ControlPlane

T = TypeVar("T")
Json = dict[str, Any]

SUITE = "suite=handlers"
"""Label of the pools of these tests."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig and a namespace. A failed call raises an error with its output."""

    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run it without a check of its exit code."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_SECONDS
        )

    async def wait(self, *arguments: str) -> str:
        """The same without blocking the event loop."""
        return await asyncio.to_thread(self, *arguments)

    def apply(self, *documents: Json) -> None:
        """Apply manifests as a user does."""
        if documents:
            self("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def paste(self, command: str) -> None:
        """Run a command in a shell that finds `partita` and this cluster. Fails if the command does."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE_SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def get(self, kind: str, name: str) -> Json | None:
        """An object, or None."""
        result = self.run("get", kind, name, "-o", "json")
        if "NotFound" in result.stderr:
            return None
        assert result.returncode == 0, result.stderr
        found: Json = json.loads(result.stdout)
        return found

    def list(self, kind: str, *options: str) -> list[Json]:
        items: list[Json] = json.loads(self("get", kind, "-o", "json", *options))["items"]
        return items

    def clear(self, namespace: str) -> None:
        """Remove the namespace with its sessions, and the pools of these tests, including finalizers."""
        self._remove("inferencesessions", "-n", namespace)
        self._remove("gpupools", "-l", SUITE)
        self("delete", "namespace", namespace, "--wait=false")

    def _remove(self, kind: str, *which: str) -> None:
        for item in self.list(kind, *which):
            meta = item["metadata"]
            where = ["-n", meta["namespace"]] if "namespace" in meta else []
            self.run("patch", kind, meta["name"], *where, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            self("delete", kind, meta["name"], *where, "--ignore-not-found", "--wait=false")


@contextmanager
def new_namespace(kubeconfig: Path, name: str) -> Iterator[Kubectl]:
    """kubectl in a namespace that exists for the duration of a `with` block."""
    kubectl = Kubectl(kubeconfig, name)
    kubectl("create", "namespace", name)
    try:
        yield kubectl
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session", name="cluster")
def cluster_with_crds(control_plane: ControlPlane) -> Kubectl:
    """The control plane with Partita's CRDs installed."""
    kubectl = Kubectl(control_plane.kubeconfig, "default")
    install_definitions(kubectl)
    return kubectl


def install_definitions(kubectl: Kubectl) -> None:
    """Install Partita's CRDs."""
    kubectl.apply(*(crd(kind) for kind in KINDS))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")


@contextmanager
def foreign_definitions(kubectl: Kubectl, definitions: Sequence[Json]) -> Iterator[None]:
    """CustomResourceDefinitions of other projects in a cluster for the duration of a `with` block."""
    names = [definition["metadata"]["name"] for definition in definitions]
    try:
        # They are too large for the annotation of `kubectl apply`.
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
        kubectl("apply", "--server-side", "-f", "-", stdin=listed)
        established = ("wait", "--for=condition=Established", "--timeout=10s", "crd", *names)
        # It fails at once on a definition whose status has no conditions yet.
        patience.eventually(lambda: kubectl.run(*established).returncode == 0)
        yield
    finally:
        kubectl("delete", "crd", *names, "--ignore-not-found", "--timeout=120s")


async def eventually(get: Callable[[], T], want: Callable[[T], object], seconds: float = PATIENCE_SECONDS) -> T:
    """The result of `get` when it meets `want`. Fails with the last result at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = await asyncio.to_thread(get)
        if want(found):
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s; the last answer: {json.dumps(found, indent=1, default=str)}")
        await asyncio.sleep(0.1)


def condition(document: Json | None, type: str) -> Json:
    """A condition of an object; empty if it is missing."""
    conditions = ((document or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == type), {})


def reason(document: Json | None, type: str = "Ready") -> tuple[str, str]:
    """Status and reason of a condition."""
    found = condition(document, type)
    return found.get("status", ""), found.get("reason", "")


def pool(name: str, count: int | None = 4, **spec: Any) -> Json:
    """The manifest of an emulated pool."""
    curves = {"curves": [{"model": "*", "alphaMicros": 1000, "betaMicros": 4000}]}
    body: Json = {"pricePerHour": "1", "emulation": curves, **spec}
    if count is not None:
        body["count"] = count
    label, value = SUITE.split("=")
    meta = {"name": name, "labels": {label: value}}
    return {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": meta, "spec": body}


def session(name: str, **spec: Any) -> Json:
    """The manifest of a session with one model."""
    model = {"entrypoint": "tests.models:detector"}
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "InferenceSession",
        "metadata": {"name": name},
        "spec": {
            "slo": {"latencyMs": 200},
            "rate": {"requestsPerSecond": 50},
            "modules": [{"name": "detector", "model": model, "input": {"shape": [3, 32, 32]}}],
            **spec,
        },
    }
