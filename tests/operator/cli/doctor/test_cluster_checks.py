"""Findings on a cluster, from facts."""

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.cli.doctor.pasted_commands import check_commands

from partita_operator.cli.doctor.cluster_checks import cluster_findings
from partita_operator.cli.doctor.cluster_facts import (
    AccessFacts,
    ClusterFacts,
    DefinitionFacts,
    KubeRayFacts,
    LeaseFacts,
    MetricsFacts,
    NoCluster,
    NodeFacts,
    ObjectFacts,
    OperatorFacts,
    WebhookFacts,
)
from partita_operator.cli.doctor.findings import CheckFinding, Level, Unknown

LEASE = LeaseFacts("pod-1", 3.0, 15)
OPERATOR = OperatorFacts("partita-system", "partita", "0.1.0", 2, 2, LEASE)
WEBHOOK = WebhookFacts("partita-admission", True, "partita-system/partita-admission", 2)
KUBERAY = KubeRayFacts(("rayclusters", "rayservices"), "1.7.0", ())
NODE = NodeFacts("l4", True, "NVIDIA-L4", {"nvidia.com/gpu": 4})
POOL = ObjectFacts("GPUPool", "l4", True, "True", "")
HEALTHY = ClusterFacts(
    server="https://127.0.0.1:6443",
    flags="-n team --context production",
    namespace="team",
    version=(1, 37),
    definitions=(DefinitionFacts("GPUPool", True, True),),
    access=(AccessFacts("GPUPool", ()),),
    operators=(OPERATOR,),
    objects=(POOL,),
    webhooks=(WEBHOOK,),
    kuberay=KUBERAY,
    nodes=(NODE,),
    metrics=MetricsFacts(("partita-system/partita-metrics",), True, ("partita-system/partita",)),
)


def found(**changed: Any) -> dict[str, CheckFinding]:
    """The findings by check, after every command in them was checked."""
    findings = list(cluster_findings(replace(HEALTHY, **changed), "0.1.0"))
    check_commands(findings)
    return {finding.check: finding for finding in findings}


def operator(**changed: Any) -> dict[str, Any]:
    return {"operators": (replace(OPERATOR, **changed),)}


def test_a_healthy_cluster_has_nothing_wrong() -> None:
    assert {finding.level for finding in found().values()} == {Level.OK}


@pytest.mark.parametrize(
    ("changed", "check", "want", "message"),
    [
        pytest.param({"version": (1, 29)}, "API server", Level.ERROR, "too old", id="too old"),
        pytest.param({"version": (1, 33)}, "API server", Level.WARNING, "not tested", id="not tested"),
        pytest.param(
            {"definitions": (DefinitionFacts("GPUPool", False, False),)},
            "CRD GPUPool",
            Level.ERROR,
            "not installed",
            id="no CRD",
        ),
        pytest.param(
            {"definitions": (DefinitionFacts("GPUPool", True, False),)},
            "CRD GPUPool",
            Level.WARNING,
            "schema differs",
            id="other CRD",
        ),
        pytest.param(
            {"definitions": (DefinitionFacts("GPUPool", True, Unknown("forbidden")),)},
            "CRD GPUPool",
            Level.OK,
            "forbidden",
            id="CRD may not be read",
        ),
        pytest.param(
            {"access": (AccessFacts("InferenceSession", ("list", "patch")),)},
            "rights InferenceSession",
            Level.ERROR,
            "may not list, patch InferenceSessions in namespace team",
            id="may not read",
        ),
        pytest.param(
            {"access": (AccessFacts("InferenceSession", ("create",)),)},
            "rights InferenceSession",
            Level.WARNING,
            "not create",
            id="may not change",
        ),
        pytest.param(
            {"access": (AccessFacts("GPUPool", ("create",)),)},
            "rights GPUPool",
            Level.OK,
            "administrators",
            id="pools are for administrators",
        ),
        pytest.param({"operators": ()}, "operator", Level.WARNING, "no Deployment", id="no operator"),
        pytest.param(operator(replicas=0, ready=0), "operator", Level.ERROR, "0 replicas", id="scaled down"),
        pytest.param(operator(ready=0), "operator", Level.ERROR, "No pod", id="not ready"),
        pytest.param(operator(version="0.2.0"), "operator", Level.WARNING, "0.2.0", id="other version"),
        pytest.param(operator(lease=None), "leader election", Level.WARNING, "no Lease", id="no Lease"),
        pytest.param(
            operator(lease=replace(LEASE, holder="")), "leader election", Level.ERROR, "No replica", id="no leader"
        ),
        pytest.param(
            operator(lease=replace(LEASE, age_seconds=400.0)), "leader election", Level.ERROR, "400 s", id="stopped"
        ),
        pytest.param(
            operator(lease=Unknown("forbidden")), "leader election", Level.SKIPPED, "forbidden", id="secret Lease"
        ),
        pytest.param({"objects": ()}, "pools and sessions", Level.SKIPPED, "none yet", id="no objects"),
        pytest.param(
            {"objects": (replace(POOL, is_processed=False),)},
            "pools and sessions",
            Level.ERROR,
            "has not processed GPUPool l4",
            id="not processed",
        ),
        pytest.param(
            {"objects": tuple(replace(POOL, key=f"p{i}", ready="False", reason="No nodes.") for i in range(5))},
            "pools and sessions",
            Level.WARNING,
            "and 2 more are not Ready: No nodes.",
            id="not ready objects",
        ),
        pytest.param({"webhooks": ()}, "webhook", Level.SKIPPED, "optional", id="no webhook"),
        pytest.param(
            {"webhooks": (replace(WEBHOOK, has_authority=False),)}, "webhook", Level.ERROR, "caBundle", id="no CA"
        ),
        pytest.param(
            {"webhooks": (replace(WEBHOOK, endpoints=0),)}, "webhook", Level.ERROR, "No pod", id="no endpoint answers"
        ),
        pytest.param(
            {"webhooks": (replace(WEBHOOK, endpoints=Unknown("forbidden")),)},
            "webhook",
            Level.SKIPPED,
            "forbidden",
            id="secret endpoints",
        ),
        pytest.param({"kuberay": KubeRayFacts((), None, ())}, "KubeRay", Level.SKIPPED, "no session", id="no KubeRay"),
        pytest.param(
            {"kuberay": KubeRayFacts((), None, ("team/traffic",))},
            "KubeRay",
            Level.ERROR,
            "team/traffic",
            id="KubeRay is needed",
        ),
        pytest.param({"kuberay": replace(KUBERAY, version="1.3.2")}, "KubeRay", Level.ERROR, "1.4", id="old KubeRay"),
        pytest.param(
            {"kuberay": replace(KUBERAY, version=None)}, "KubeRay", Level.WARNING, "no Deploy", id="CRDs only"
        ),
        pytest.param({"kuberay": replace(KUBERAY, version="")}, "KubeRay", Level.OK, "unknown", id="unknown version"),
        pytest.param(
            {"kuberay": replace(KUBERAY, version=Unknown("forbidden"))},
            "KubeRay",
            Level.OK,
            "cannot be read",
            id="secret version",
        ),
        pytest.param({"nodes": ()}, "GPU nodes", Level.WARNING, "No node", id="no GPUs"),
        pytest.param({"nodes": (replace(NODE, ready=False),)}, "GPU nodes", Level.WARNING, "not Ready: l4", id="down"),
        pytest.param({"nodes": (replace(NODE, product=""),)}, "GPU nodes", Level.WARNING, "no label", id="no label"),
        pytest.param(
            {"nodes": (NodeFacts("amd", True, "", {"amd.com/gpu": 8}),)},
            "GPU nodes",
            Level.OK,
            "amd (8 amd.com/gpu)",
            id="other vendors need no label",
        ),
        pytest.param({"metrics": MetricsFacts((), True, ())}, "metrics", Level.SKIPPED, "no Service", id="no metrics"),
        pytest.param(
            {"metrics": MetricsFacts(("a/b",), True, ())}, "metrics", Level.WARNING, "ServiceMonitor", id="no monitor"
        ),
        pytest.param({"metrics": MetricsFacts(("a/b",), False, ())}, "metrics", Level.OK, "a/b", id="no Prometheus"),
    ],
)
def test_findings(changed: dict[str, Any], check: str, want: Level, message: str) -> None:
    finding = found(**changed)[check]
    assert finding.level is want
    assert message in finding.message


PARTS = ("definitions", "access", "operators", "objects", "webhooks", "kuberay", "nodes", "metrics", "version")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_cannot_be_read_is_skipped(part: str) -> None:
    skipped = [finding for finding in found(**{part: Unknown("forbidden")}).values() if finding.level is Level.SKIPPED]
    assert [finding.message for finding in skipped] == ["It cannot be read: forbidden."]


@pytest.mark.parametrize(("is_expected", "want"), [(True, Level.ERROR), (False, Level.SKIPPED)])
def test_without_a_cluster_there_is_one_finding(is_expected: bool, want: Level) -> None:
    findings = list(cluster_findings(NoCluster("It does not answer.", is_expected), "0.1.0"))
    check_commands(findings)
    assert [finding.level for finding in findings] == [want]


def test_commands_lead_to_the_same_cluster() -> None:
    broken = found(
        definitions=(DefinitionFacts("GPUPool", False, False),), operators=(replace(OPERATOR, ready=0),), nodes=()
    )
    commands = [finding.command for finding in broken.values() if finding.level is not Level.OK]
    assert len(commands) == 3
    assert all("kubectl -n team --context production " in command for command in commands)
