"""The kubectl commands that messages propose work on a real API server when pasted into a shell."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.operator.kubectl import Json, Kubectl, pool, session
from tests.operator.reconcile.proposed_commands import proposed_commands

from partita_api.meta import APPROVED_ANNOTATION, FINALIZER, RETRY_ANNOTATION
from partita_operator.cli.main import main
from partita_operator.engines.kuberay.state import explanation
from partita_operator.kube.resources import install_crds

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


def test_pasted_commands_of_conditions_work(objects: Kubectl) -> None:
    proposed = {name: command for name, command in proposed_commands().items() if "kubectl partita" not in command}
    for command in proposed.values():
        objects.paste(command)

    of_session = metadata(objects, "isess", "traffic")
    assert of_session["annotations"][APPROVED_ANNOTATION] in proposed["approve_plan"]
    assert of_session["annotations"][RETRY_ANNOTATION]
    assert "finalizers" not in of_session
    assert metadata(objects, "gpool", "vision")["annotations"][APPROVED_ANNOTATION] in proposed["approve_partitioning"]
    assert LABEL not in metadata(objects, "node", "b").get("labels", {})


def test_pods_of_a_ray_cluster_that_does_not_start(cluster: Kubectl) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "Initializing", "message": "as KubeRay says"}
    rayservice = {"metadata": {"namespace": "vision", "name": "traffic"}, "status": {"conditions": [ready]}}
    (command,) = re.findall(r"`([^`]+)`", explanation(rayservice))
    cluster.paste(command)


def test_missing_kinds_are_installed(cluster: Kubectl) -> None:
    cluster.paste(install_crds())


def test_nodes_get_the_labels_of_a_mig_layout(objects: Kubectl, tmp_path: Path) -> None:
    demand = tmp_path / "demand.yaml"
    demand.write_text("product: H100-80GB\nslices: {3g.40gb: 2, 1g.10gb: 1}\n")
    printed = CliRunner().invoke(main, ["mig", str(demand)]).stdout
    commands = re.findall(r"kubectl label node NODE .+", printed)
    assert commands
    for command in commands:
        objects.paste(f"{command.replace('NODE', 'b')} --overwrite")
