"""The kubectl commands that messages propose work on a real API server when pasted into a shell."""

import os
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from tests.operator.kubectl import Json, Kubectl, pool, session
from tests.operator.reconcile.proposed_commands import proposed_commands

from partita_api.meta import APPROVED_ANNOTATION, FINALIZER, RETRY_ANNOTATION

pytestmark = pytest.mark.apiserver

LABEL = "partita.dev/mig-config"


@pytest.fixture
def objects(cluster: Kubectl) -> Iterator[Kubectl]:
    """The objects of the commands."""
    made = session("traffic")
    made["metadata"] |= {"namespace": "default", "finalizers": [FINALIZER]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": {LABEL: "vision-0"}}}
    cluster.apply(pool("fast"), pool("vision"), made, node)
    yield cluster
    cluster.run("patch", "isess", "traffic", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster("delete", "isess/traffic", "gpool/fast", "gpool/vision", "node/b", "--ignore-not-found", "--wait=false")


def metadata(kubectl: Kubectl, kind: str, name: str) -> Json:
    found: Json = yaml.safe_load(kubectl("get", kind, name, "-o", "yaml"))["metadata"]
    return found


def test_pasted_commands_work(objects: Kubectl) -> None:
    proposed = {name: command for name, command in proposed_commands().items() if "kubectl partita" not in command}
    for command in proposed.values():
        environment = {**os.environ, "KUBECONFIG": str(objects.kubeconfig)}
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    of_session = metadata(objects, "isess", "traffic")
    assert of_session["annotations"][APPROVED_ANNOTATION] in proposed["approve_plan"]
    assert of_session["annotations"][RETRY_ANNOTATION]
    assert "finalizers" not in of_session
    assert metadata(objects, "gpool", "vision")["annotations"][APPROVED_ANNOTATION] in proposed["approve_partitioning"]
    assert LABEL not in metadata(objects, "node", "b").get("labels", {})
