"""The chart's console: its pod, and what its account may do."""

from typing import Any

import pytest
from click.testing import CliRunner
from tests.operator.chart.charts import EVERYTHING, documents, rendered
from tests.operator.kube.kubeconfigs import kubeconfig

from partita_operator.cli.main import main

WITH_CONSOLE: dict[str, Any] = {"console": {"enabled": True}}
READ = {
    ("partita.dev", "inferencesessions", "list"),
    ("partita.dev", "inferencesessions", "watch"),
    ("partita.dev", "pipelineplans", "list"),
    ("partita.dev", "pipelineplans", "watch"),
    ("", "events", "list"),
}
POOLS = {("partita.dev", "gpupools", "list"), ("partita.dev", "gpupools", "watch")}


def console_pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = rendered({**(values or {}), **WITH_CONSOLE})["Deployment", "partita-console"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def rights(values: dict[str, Any]) -> dict[tuple[str | None, str], set[tuple[str, str, str]]]:
    """What the console's roles permit, by their namespace and name."""
    return {
        (found["metadata"].get("namespace"), found["metadata"]["name"]): {
            (group, resource, verb)
            for rule in found["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for found in documents({**values, **WITH_CONSOLE})
        if found["kind"] in ("ClusterRole", "Role") and "console" in found["metadata"]["name"]
    }


def test_there_is_none_by_default() -> None:
    assert not [key for key in rendered(EVERYTHING) if "console" in key[1]]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything set"])
def test_its_pod_is_restricted_and_listens_on_itself_only(values: dict[str, Any]) -> None:
    spec = console_pod(values)
    (container,) = spec["containers"]

    assert spec["serviceAccountName"] == "partita-console"
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "--host=127.0.0.1" in container["args"]
    assert "ports" not in container
    assert not [key for key in rendered({**values, **WITH_CONSOLE}) if key == ("Service", "partita-console")]


def test_the_command_has_these_options(tmp_path: Any) -> None:
    """It fails only for the address, which is of no machine here."""
    (container,) = console_pod({"namespaces": ["team-a", "team-b"]})["containers"]
    assert container["command"][:3] == ["python", "-m", "partita_operator"]
    assert "--namespace=team-a,team-b" in container["args"]
    arguments = [*container["command"][3:], *container["args"], "--host=192.0.2.1"]
    result = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(kubeconfig(tmp_path, {}))])

    assert "192.0.2.1, port 8765, cannot be listened on" in result.output


def test_its_account_may_only_read() -> None:
    assert rights({"scope": "Cluster"}) == {(None, "partita-console"): READ | POOLS}
    assert "--namespace" not in str(console_pod({"scope": "Cluster"}))


def test_with_namespaces_its_rights_are_limited_to_them() -> None:
    assert rights({"namespaces": ["team-a", "team-b"]}) == {
        (None, "partita-console"): POOLS,
        ("team-a", "partita-console"): READ,
        ("team-b", "partita-console"): READ,
        ("default", "partita-console-events"): {("", "events", "list")},
    }


def test_roles_are_bound_to_its_account_only() -> None:
    bindings = [
        found
        for found in documents({"namespaces": ["team-a"], **WITH_CONSOLE})
        if found["kind"] in ("ClusterRoleBinding", "RoleBinding") and "console" in found["metadata"]["name"]
    ]

    assert {found["roleRef"]["name"] for found in bindings} == {"partita-console", "partita-console-events"}
    account = {"kind": "ServiceAccount", "name": "partita-console", "namespace": "partita-system"}
    assert all(found["subjects"] == [account] for found in bindings)


def test_nobody_connects_to_it() -> None:
    objects = rendered({**WITH_CONSOLE, "networkPolicies": {"enabled": True}})
    policy = objects["NetworkPolicy", "partita-console"]["spec"]
    labels = objects["Deployment", "partita-console"]["spec"]["template"]["metadata"]["labels"]

    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 443, 6443}


def test_the_operator_s_objects_do_not_select_its_pod() -> None:
    objects = rendered({**EVERYTHING, **WITH_CONSOLE})
    labels = objects["Deployment", "partita-console"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["Deployment", "partita"]["spec"]["selector"]["matchLabels"],
        objects["Service", "partita-metrics"]["spec"]["selector"],
        objects["NetworkPolicy", "partita"]["spec"]["podSelector"]["matchLabels"],
    ]

    assert not [selector for selector in selectors if selector.items() <= labels.items()]
