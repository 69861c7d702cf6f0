"""`partita doctor` against a real API server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.operator.cli.doctor.pasted_commands import check_commands
from tests.operator.kubectl import Kubectl, new_namespace

from partita_api.crd_schema import KINDS, crd
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.definitions import install_definitions
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.cli.doctor.cluster_checks import cluster_findings
from partita_operator.cli.doctor.cluster_facts import ClusterFacts, NoCluster
from partita_operator.cli.doctor.cluster_probe import cluster_facts
from partita_operator.cli.doctor.findings import CheckFinding, Level
from partita_operator.cli.main import main

pytestmark = pytest.mark.apiserver

NAMESPACE = "doctor"
LABELS = {"app.kubernetes.io/name": "partita", "app.kubernetes.io/component": "operator"}


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane) -> Iterator[Kubectl]:
    """kubectl in a namespace of this module, with Partita's CRDs installed."""
    install_definitions(control_plane.kubeconfig)
    with new_namespace(control_plane.kubeconfig, NAMESPACE) as made:
        yield made


def facts_of(kubeconfig: Path) -> ClusterFacts:
    facts = cluster_facts(ClusterPlace(kubeconfig, namespace=NAMESPACE))
    assert isinstance(facts, ClusterFacts), facts
    return facts


def findings_of(kubectl: Kubectl) -> dict[str, CheckFinding]:
    """The findings by check, after every command of kubectl in them was run."""
    findings = list(cluster_findings(facts_of(kubectl.kubeconfig), "0.1.0"))
    check_commands(findings)
    for command in (finding.command for finding in findings if "kubectl" in finding.command):
        kubectl.paste(command)
    return {finding.check: finding for finding in findings}


def operator(replicas: int = 1, version: str = "0.1.0") -> dict[str, Any]:
    """A Deployment of the operator. No node runs its pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "partita",
            "namespace": NAMESPACE,
            "labels": {**LABELS, "app.kubernetes.io/version": version},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [{"name": "operator", "image": "partita:dev"}]},
            },
        },
    }


def lease(holder: str, renewed: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "partita", "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def test_an_administrator_of_a_cluster_with_the_crds(kubectl: Kubectl) -> None:
    found = findings_of(kubectl)
    for kind in KINDS:
        assert found[f"CRD {kind.name}"].level is Level.OK, found[f"CRD {kind.name}"]
        assert "schema of this package" in found[f"CRD {kind.name}"].message
        assert found[f"rights {kind.name}"].level is Level.OK
    assert found["API server"].level in (Level.OK, Level.WARNING)
    assert found["KubeRay"].level is not Level.ERROR


def test_a_crd_with_another_schema_is_noticed(kubectl: Kubectl) -> None:
    changed = kubectl.get("crd", crd(KINDS[0])["metadata"]["name"])
    assert changed is not None
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["addedField"] = {"type": "string"}
    try:
        kubectl("replace", "-f", "-", stdin=json.dumps(changed))
        assert findings_of(kubectl)[f"CRD {KINDS[0].name}"].level is Level.WARNING
        assert findings_of(kubectl)[f"CRD {KINDS[0].name}"].level is Level.OK, "the proposed command was run"
    finally:
        install_definitions(kubectl.kubeconfig)


def test_the_operator_s_deployment_and_lease(kubectl: Kubectl) -> None:
    kubectl.apply(operator(), lease("partita-1", datetime(2020, 1, 1, tzinfo=UTC)))
    try:
        stopped = findings_of(kubectl)
        kubectl.apply(lease("partita-1", datetime.now(UTC)))
        alive = findings_of(kubectl)
    finally:
        kubectl("delete", "deployment/partita", "lease/partita")
    assert (stopped["operator"].level, stopped["leader election"].level) == (Level.ERROR, Level.ERROR)
    assert "has not renewed" in stopped["leader election"].message
    assert alive["leader election"].level is Level.OK
    assert findings_of(kubectl)["operator"].level is Level.WARNING


def test_a_webhook_without_pods_behind_it(kubectl: Kubectl) -> None:
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "doctor-admission"},
        "webhooks": [
            {
                "name": "admission.partita.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 1,
                "clientConfig": {"service": {"name": "nobody", "namespace": NAMESPACE}},
                # No namespace has this label: other tests are not affected.
                "namespaceSelector": {"matchLabels": {"doctor": "only"}},
                "rules": [
                    {
                        "apiGroups": ["partita.dev"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE"],
                        "resources": ["inferencesessions"],
                    }
                ],
            }
        ],
    }
    kubectl.apply(hook)
    try:
        found = [w for w in _tuple(facts_of(kubectl.kubeconfig).webhooks) if w.name == "doctor-admission"]
    finally:
        kubectl("delete", "validatingwebhookconfiguration/doctor-admission")
    assert [(w.service, w.endpoints) for w in found] == [(f"{NAMESPACE}/nobody", 0)]


def test_a_node_with_gpus_and_its_labels(kubectl: Kubectl) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "doctor-l4"}}
    kubectl.apply({**node, "metadata": {"name": "doctor-l4", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}}})
    try:
        resources = {"nvidia.com/gpu": "4", "cpu": "8"}
        status = json.dumps({"status": {"capacity": resources, "allocatable": resources}})
        kubectl("patch", "node", "doctor-l4", "--subresource=status", "--type=merge", "-p", status)
        nodes = [n for n in _tuple(facts_of(kubectl.kubeconfig).nodes) if n.name == "doctor-l4"]
    finally:
        kubectl("delete", "node/doctor-l4")
    assert [(n.product, dict(n.accelerators), n.ready) for n in nodes] == [("NVIDIA-L4", {"nvidia.com/gpu": 4}, False)]


def test_a_pool_that_no_operator_has_seen(kubectl: Kubectl) -> None:
    kubectl.apply({"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": "doctor"}, "spec": {}})
    try:
        objects = [o for o in _tuple(facts_of(kubectl.kubeconfig).objects) if o.key == "doctor"]
    finally:
        kubectl("delete", "gpupool/doctor")
    assert [(o.kind, o.is_processed, o.ready) for o in objects] == [("GPUPool", False, "Unknown")]


def test_a_user_without_rights_gets_findings_and_no_traceback(
    kubectl: Kubectl, control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "nobody")
    kubeconfig = _account_kubeconfig(kubectl, control_plane.url, "nobody", tmp_path)

    result = CliRunner().invoke(main, ["doctor", "--kubeconfig", str(kubeconfig), "-n", NAMESPACE, "-o", "json"])

    assert result.exit_code == 1, result.output
    found = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    for kind in KINDS:
        assert found[f"rights {kind.name}"]["level"] == "error"
        assert found[f"CRD {kind.name}"]["level"] == "ok"
        assert "cannot be read" in found[f"CRD {kind.name}"]["message"]
    assert found["operator"]["level"] == found["GPU nodes"]["level"] == "skipped"


def test_an_api_server_that_hangs_is_given_up(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita_operator.cli.doctor.cluster_probe.REQUEST_SECONDS", 1.0)
    control_plane.pause_api_server()
    try:
        found = cluster_facts(ClusterPlace(control_plane.kubeconfig))
    finally:
        control_plane.resume_api_server()
    assert isinstance(found, NoCluster)
    assert found.is_expected


def _tuple(facts: Any) -> tuple[Any, ...]:
    assert isinstance(facts, tuple), facts
    return facts


def _account_kubeconfig(kubectl: Kubectl, url: str, account: str, directory: Path) -> Path:
    """A kubeconfig with a token of a service account."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/{account}/token"
    token = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(request)))["status"]["token"]
    document = yaml.safe_load(kubectl.kubeconfig.read_text())
    assert document["clusters"][0]["cluster"]["server"] == url
    document["users"][0]["user"] = {"token": token}
    (directory / "kubeconfig").write_text(yaml.safe_dump(document))
    return directory / "kubeconfig"
