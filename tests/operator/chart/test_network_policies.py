"""The chart's NetworkPolicies: connections to and from the operator and profiling Jobs, and to Ray's pods."""

from typing import Any

import pytest
from tests.builders import pool
from tests.operator.chart.charts import documents
from tests.operator.profiling.requests import quick

from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.profiling.kubernetes_job_manifest import job_manifest
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import ProfilingSettings

DNS = {(53, "UDP"), (53, "TCP")}


def policies(values: dict[str, Any] | None = None, **settings: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Specs by namespace and name."""
    merged = {**(values or {}), "networkPolicies": {"enabled": True, **settings}}
    return {
        (d["metadata"]["namespace"], d["metadata"]["name"]): d["spec"]
        for d in documents(merged)
        if d["kind"] == "NetworkPolicy"
    }


def operator(values: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    return policies(values, **settings)["partita-system", "partita"]


def ports(rules: list[dict[str, Any]]) -> set[tuple[Any, str]]:
    return {(port["port"], port["protocol"]) for rule in rules for port in rule["ports"]}


def test_there_are_none_by_default() -> None:
    assert not [d for d in documents() if d["kind"] == "NetworkPolicy"]


def test_the_operator_s_policy_is_for_its_pod() -> None:
    (deployment,) = [d for d in documents() if d["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    spec = operator()
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert spec["policyTypes"] == ["Ingress", "Egress"]


def test_the_operator_reaches_dns_the_api_server_and_ray_only() -> None:
    dns, api_server, ray = operator()["egress"]
    assert ports([dns]) == DNS
    assert (ports([api_server]), "to" in api_server) == ({(443, "TCP"), (6443, "TCP")}, False)
    assert (ports([ray]), ray["to"]) == ({(8265, "TCP"), (8000, "TCP")}, [{"namespaceSelector": {}}])


@pytest.mark.parametrize(
    ("address", "want"),
    [
        pytest.param("redis.ray.svc:6400", {6400}, id="host and port"),
        pytest.param("rediss://redis.ray.svc:6400", {6400}, id="with a scheme"),
        pytest.param("redis.ray.svc", {6379}, id="Redis' own port"),
        pytest.param("redis-0:6400, redis-1:6401", {6400, 6401}, id="several"),
    ],
)
def test_the_operator_reaches_the_redis_of_ray_s_heads(address: str, want: set[int]) -> None:
    *_, redis = operator({"kuberay": {"redisAddress": address}})["egress"]
    assert ports([redis]) == {(port, "TCP") for port in want}


def test_addresses_and_ports_come_from_the_values() -> None:
    elsewhere = {"ipBlock": {"cidr": "192.168.0.0/16"}}
    spec = operator(
        apiServer={"ports": [6443], "cidrs": ["10.0.0.1/32", "10.0.0.2/32"]},
        ray={"ports": [8265, 8100], "to": [elsewhere]},
        metricsFrom=[{"namespaceSelector": {}}],
    )
    _, api_server, ray = spec["egress"]
    assert ports([api_server]) == {(6443, "TCP")}
    assert [to["ipBlock"]["cidr"] for to in api_server["to"]] == ["10.0.0.1/32", "10.0.0.2/32"]
    assert (ports([ray]), ray["to"]) == ({(8265, "TCP"), (8100, "TCP")}, [elsewhere])
    assert spec["ingress"][0]["from"] == [{"namespaceSelector": {}}]


@pytest.mark.parametrize("admission", [False, True], ids=["without webhook", "with webhook"])
def test_the_operator_accepts_connections_on_its_ports_only(admission: bool) -> None:
    values = {"admission": {"enabled": admission}}
    named = {(port, "TCP") for port in ("metrics", "health", *(["admission"] if admission else []))}
    assert ports(operator(values)["ingress"]) == named
    (deployment,) = [d for d in documents(values) if d["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {(port["name"], port["protocol"]) for port in container["ports"]} == named


def test_profiling_jobs_reach_dns_only() -> None:
    found = policies(profiling={"namespaces": ["team-a", "team-b"]})
    specs = [found[namespace, "partita-profiling"] for namespace in ("team-a", "team-b")]
    job = job_manifest("team-a", quick("fast"), pool("fast").build(), 1, image="x", settings=ProfilingSettings())
    for spec in specs:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert "ingress" not in spec
        assert ports(spec["egress"]) == DNS


def test_profiling_jobs_may_get_further_egress_for_their_models() -> None:
    models = {"ports": [{"port": 443, "protocol": "TCP"}]}
    found = policies(profiling={"namespaces": ["team-a"], "egress": [models]})
    assert ports(found["team-a", "partita-profiling"]["egress"]) == DNS | {(443, "TCP")}


def test_ray_pods_are_reached_by_each_other_the_operators_and_clients() -> None:
    kuberay, clients = {"namespaceSelector": {}}, {"podSelector": {"matchLabels": {"app": "camera"}}}
    rays = {"namespaces": ["team-a"], "kuberay": [kuberay]}
    open_to_all = policies(rayPods=rays)["team-a", "partita-ray"]
    limited = policies(rayPods={**rays, "clientPorts": [8000, 9000], "clients": [clients]})["team-a", "partita-ray"]

    groups = rayservice("vision", [], [], None, KubeRaySettings(image="x"))["spec"]["rayClusterConfig"]
    labels = groups["headGroupSpec"]["template"]["metadata"]["labels"]
    assert limited["podSelector"]["matchLabels"].items() <= labels.items()
    assert limited["policyTypes"] == ["Ingress"]
    each_other, dashboard, serve = limited["ingress"]
    assert each_other == {"from": [{"podSelector": limited["podSelector"]}]}
    assert ports([dashboard]) == {(8265, "TCP")}
    assert ports([serve]) == {(8000, "TCP"), (9000, "TCP")}
    (operator_peer, *others), (also_operator, *more) = dashboard["from"], serve["from"]
    assert operator_peer == also_operator
    assert operator_peer["podSelector"] == operator()["podSelector"]
    assert (others, more) == ([kuberay], [kuberay, clients])
    assert [rule.get("from") for rule in open_to_all["ingress"]] == [each_other["from"], dashboard["from"], None]
