"""The Helm chart as it renders, by Helm's own SDK."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.operator.chart.charts import CHART, EVERYTHING, config_file, documents, pod, rendered

from partita_operator.engines import monitoring_tokens
from partita_operator.engines.kuberay.authentication import SECRET

WARNING = 2

charts = pytest.importorskip("helm_python.chart", reason="Helm's SDK is missing: pip install helm-python-sdk")
errors = pytest.importorskip("helm_python.errors")


def rules(values: dict[str, Any] | None = None) -> Iterator[tuple[str, str, str]]:
    """(API group, resource, verb) of everything that the operator may do in a namespace with sessions."""
    yield from granted(rendered({**(values or {}), "scope": "Cluster"})["ClusterRole", "partita"])


def granted(role: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


BOTH = pytest.mark.parametrize("values", [None, EVERYTHING], ids=["defaults", "everything set"])


@BOTH
def test_helm_lint_passes(values: dict[str, Any] | None) -> None:
    report = charts.lint(CHART, values, strict=True)
    assert [message for message in report["messages"] if message["severity"] >= WARNING] == []
    assert report["errors"] == []


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "want"),
    [
        pytest.param({"tag": "1.2.3"}, "registry/operator:1.2.3", id="a tag"),
        pytest.param({"digest": DIGEST}, f"registry/operator@{DIGEST}", id="a digest"),
        pytest.param({"tag": "1.2.3", "digest": DIGEST}, f"registry/operator@{DIGEST}", id="a digest overrides a tag"),
    ],
)
def test_the_image_is_named_by_tag_or_digest(image: dict[str, str], want: str) -> None:
    (container,) = pod({"image": {"repository": "registry/operator", **image}})["containers"]
    assert container["image"] == want


@BOTH
def test_the_pod_is_restricted(values: dict[str, Any] | None) -> None:
    spec = pod(values)
    (container,) = spec["containers"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe", "resources"} <= set(container)


def test_replicas_share_a_lease_of_the_release() -> None:
    objects = rendered(release="blue")
    deployment = objects["Deployment", "blue-partita"]["spec"]
    assert deployment["replicas"] == 2
    lease = yaml.safe_load(objects["ConfigMap", "blue-partita-config"]["data"]["config.yaml"])["leaderElection"]
    assert (lease["namespace"], lease["name"]) == ("partita-system", "blue-partita")
    role = objects["Role", "blue-partita-own"]
    assert role["metadata"]["namespace"] == "partita-system"
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]] == [
        (None, ["create"]),
        (["blue-partita"], ["get", "update"]),
        (["partita-monitoring"], ["get", "create", "patch"]),
    ]
    assert objects["RoleBinding", "blue-partita-own"]["roleRef"]["name"] == "blue-partita-own"


@BOTH
def test_no_right_is_a_wildcard_and_no_secret_of_others_can_be_read(values: dict[str, Any] | None) -> None:
    for group, resource, verb in rules(values):
        assert "*" not in (group, resource, verb)
        assert resource not in ("clusterroles", "roles", "pods/exec")
    for rule in rendered({**(values or {}), "scope": "Cluster"})["ClusterRole", "partita"]["rules"]:
        assert "secrets" not in rule["resources"] or rule["resourceNames"] in (
            [SECRET],
            ["serve-tls"],
            ["partita-clients"],
            ["partita-clients", "shop-clients"],
        )


JOBS = {
    ("batch", "jobs", "get"),
    ("batch", "jobs", "create"),
    ("batch", "jobs", "delete"),
    ("", "pods", "list"),
    ("", "pods/log", "get"),
    ("resource.k8s.io", "resourceclaimtemplates", "create"),
    ("resource.k8s.io", "resourceclaimtemplates", "patch"),
}
CUTS = {("", "nodes", "patch"), ("", "pods", "list"), ("", "pods", "delete")}
RAY_SERVICES = {("ray.io", "rayservices", verb) for verb in ("get", "list", "create", "patch", "delete")}
RAY_CLUSTERS = {("ray.io", "rayclusters", verb) for verb in ("get", "list", "patch")}
ADDRESSES = {
    *(("", "services", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(("discovery.k8s.io", "endpointslices", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
}
BUDGETS = {("policy", "poddisruptionbudgets", verb) for verb in ("get", "list", "create", "patch", "delete")}
NO_KEYS: dict[str, Any] = {"clients": {"allowedSecrets": []}}
TOKENS = {("", "secrets", verb) for verb in ("get", "create", "patch", "delete")}


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({"mig": {"enabled": True}}, CUTS, id="nodes and pods, where GPUs are cut"),
        pytest.param({"profiling": {"image": "x"}}, JOBS, id="jobs, with an image for them"),
        pytest.param(
            {"kuberay": {"image": "x"}},
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS | TOKENS,
            id="KubeRay, with its image",
        ),
        pytest.param(
            {"kuberay": {"image": "x", "authSecret": "ours"}},
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS,
            id="KubeRay, with a token of its own",
        ),
        pytest.param(
            {"kuberay": {"image": "x", "authentication": "Disabled"}},
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS,
            id="KubeRay, without authentication",
        ),
        pytest.param(
            {
                "redis": {"enabled": True},
                "kuberay": {"image": "x", "authentication": "Disabled", "redisPasswordSecret": {"name": "redis"}},
            },
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS | TOKENS,
            id="KubeRay, with the password of a Redis",
        ),
        pytest.param(
            {"kuberay": {"image": "x", "authentication": "Disabled", "transportTls": True}},
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS | TOKENS,
            id="KubeRay, with certificates",
        ),
        pytest.param(
            {"kuberay": {"image": "x", "authentication": "Disabled", "transportTls": True, "transportTlsSecret": "x"}},
            JOBS | RAY_SERVICES | RAY_CLUSTERS | ADDRESSES | BUDGETS,
            id="KubeRay, with certificates of the platform",
        ),
        pytest.param(
            {"clients": {"allowedSecrets": ["shop-clients"]}}, {("", "secrets", "get")}, id="API keys of clients"
        ),
    ],
)
def test_optional_features_add_only_the_rights_they_need(
    values: dict[str, Any], want: set[tuple[str, str, str]]
) -> None:
    assert set(rules({**NO_KEYS, **values})) - set(rules(NO_KEYS)) == want


WRITE = ("get", "list", "watch", "create", "patch", "delete")
INGRESSES = {
    *(("networking.k8s.io", "ingresses", verb) for verb in WRITE),
    *(("networking.k8s.io", "ingressclasses", verb) for verb in ("list", "watch")),
}
ROUTES = {
    *(("gateway.networking.k8s.io", kind, verb) for kind in ("httproutes", "grpcroutes") for verb in WRITE),
    *(("gateway.networking.k8s.io", "gateways", verb) for verb in ("list", "watch")),
}


@pytest.mark.parametrize(
    ("exposure", "want"),
    [
        pytest.param({"allowedHosts": ["a.example.com"], "allowedAnnotations": ["a/b"]}, set(), id="hosts alone"),
        pytest.param({"allowedIngressClasses": ["nginx"]}, INGRESSES, id="Ingresses"),
        pytest.param({"allowedGateways": ["gateways/public"]}, ROUTES, id="routes of Gateways"),
        pytest.param({"checkedTlsSecrets": ["serve-tls"]}, {("", "secrets", "get")}, id="Secrets of these names"),
    ],
)
def test_public_addresses_add_only_the_rights_they_need(
    exposure: dict[str, Any], want: set[tuple[str, str, str]]
) -> None:
    kuberay = {**NO_KEYS, "kuberay": {"image": "x", "authentication": "Disabled"}}

    assert set(rules({**kuberay, "exposure": exposure})) - set(rules(kuberay)) == want
    assert set(rules({"exposure": exposure})) == set(rules()), "without KubeRay no session has a Service"


CLUSTER_SCOPED = {
    "gateways",
    "ingressclasses",
    "customresourcedefinitions",
    "deviceclasses",
    "gpupools",
    "gpupools/status",
    "nodes",
    "resourceslices",
}


def test_with_namespaces_the_rights_are_limited_to_them() -> None:
    everywhere = {**EVERYTHING, "mig": {"enabled": False}}
    scoped = documents({**everywhere, "namespaces": ["team-a", "team-b"]})
    roles = {
        (found["metadata"].get("namespace"), found["metadata"]["name"]): set(granted(found))
        for found in scoped
        if found["kind"] in ("ClusterRole", "Role")
        and not found["metadata"]["name"].endswith(("-view", "-edit", "-own"))
    }
    assert set(roles) == {
        (None, "partita"),
        ("team-a", "partita"),
        ("team-b", "partita"),
        ("default", "partita-events"),
    }
    assert {resource for _, resource, _ in roles[None, "partita"]} == CLUSTER_SCOPED
    assert roles["team-a", "partita"] == roles["team-b", "partita"]
    assert not {resource for _, resource, _ in roles["team-a", "partita"]} & CLUSTER_SCOPED
    assert roles[None, "partita"] | roles["team-a", "partita"] == set(rules(everywhere))
    bound = {
        (found["metadata"].get("namespace"), found["roleRef"]["kind"], found["roleRef"]["name"])
        for found in scoped
        if found["kind"] in ("ClusterRoleBinding", "RoleBinding")
    }
    assert bound >= {(namespace, "Role" if namespace else "ClusterRole", name) for namespace, name in roles}
    assert yaml.safe_load(config_file({"namespaces": ["team-a", "team-b"]}))["namespaces"] == ["team-a", "team-b"]


def test_everything_belongs_to_the_release() -> None:
    objects = rendered(EVERYTHING, release="blue")
    assert {name for _, name in objects} == {
        "blue-partita",
        "blue-partita-config",
        "blue-partita-metrics",
        "blue-partita-view",
        "blue-partita-edit",
        "blue-partita-sessions",
        "blue-partita-dashboard",
        "blue-partita-admission",
        "blue-partita-profiling",
        "blue-partita-ray",
        "blue-partita-own",
        "blue-partita-lease",
        "blue-partita-events",
        "blue-partita-mig",
        "blue-partita-redis",
    }
    for key, found in objects.items():
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "blue", key
    binding = objects["ClusterRoleBinding", "blue-partita"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "blue-partita", "namespace": "partita-system"}]


def test_monitors_scrape_the_service_and_the_frontends() -> None:
    objects = rendered(EVERYTHING)
    service, monitor = objects["Service", "partita-metrics"], objects["ServiceMonitor", "partita"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [e["port"] for e in monitor["spec"]["endpoints"]] == [p["name"] for p in service["spec"]["ports"]]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    frontends = objects["PodMonitor", "partita-sessions"]["spec"]
    paths = [endpoint["path"] for endpoint in frontends["podMetricsEndpoints"]]
    assert paths == ["/default/traffic/partita/metrics", "/a/b/partita/metrics"]
    assert frontends["namespaceSelector"] == {"matchNames": ["ray"]}
    assert not {kind for kind, _ in rendered()} & {"ServiceMonitor", "PodMonitor"}
    assert ("ConfigMap", "partita-dashboard") not in rendered()


def test_prometheus_sends_a_token_only_to_the_pods_of_its_namespace() -> None:
    sessions = ["a/one", "b/other", "a/two"]
    objects = rendered({"metrics": {"podMonitor": {"enabled": True, "sessions": sessions}}})
    monitors = {name: found["spec"] for (kind, name), found in objects.items() if kind == "PodMonitor"}
    assert {name: spec["namespaceSelector"]["matchNames"] for name, spec in monitors.items()} == {
        "partita-sessions-a": ["a"],
        "partita-sessions-b": ["b"],
    }
    found = {
        endpoint["path"]: endpoint["authorization"]["credentials"]
        for spec in monitors.values()
        for endpoint in spec["podMetricsEndpoints"]
    }
    assert found == {
        f"/{s}/partita/metrics": {"name": monitoring_tokens.SECRET, "key": s.partition("/")[0]} for s in sessions
    }


def test_the_dashboard_is_rendered_unchanged() -> None:
    config = rendered(EVERYTHING)["ConfigMap", "partita-dashboard"]
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config["data"]["partita.json"]) == json.loads((CHART / "dashboards/partita.json").read_text())


@pytest.mark.parametrize(
    ("metrics", "want_words"),
    [
        pytest.param({"podMonitor": {"enabled": True}}, "sessions must name", id="no sessions"),
        pytest.param(
            {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}},
            "needs metrics.service",
            id="no service",
        ),
    ],
)
def test_monitors_without_a_target_are_refused(metrics: dict[str, Any], want_words: str) -> None:
    with pytest.raises(errors.HelmRenderError, match=want_words):
        rendered({"metrics": metrics})


def test_the_metrics_service_selects_the_operator() -> None:
    objects = rendered()
    service, deployment = objects["Service", "partita-metrics"], objects["Deployment", "partita"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]


@pytest.mark.parametrize(
    ("values", "want_left_out"),
    [
        pytest.param({"metrics": {"service": {"enabled": False}}}, ("Service", "partita-metrics"), id="metrics"),
        pytest.param({"rbac": {"create": False}}, ("ClusterRole", "partita"), id="rights"),
        pytest.param({"rbac": {"aggregate": False}}, ("ClusterRole", "partita-edit"), id="roles of people"),
        pytest.param(
            {"serviceAccount": {"create": False, "name": "mine"}}, ("ServiceAccount", "partita"), id="account"
        ),
    ],
)
def test_parts_can_be_disabled(values: dict[str, Any], want_left_out: tuple[str, str]) -> None:
    assert want_left_out in rendered()
    assert want_left_out not in rendered(values)


@pytest.mark.parametrize(
    ("values", "want_words"),
    [
        pytest.param({"replicaCount": 3}, "replicaCount", id="unknown value"),
        pytest.param({"replicas": 0}, "replicas", id="no operator"),
        pytest.param({"image": {"digest": "sha256:1"}}, "digest", id="half a digest"),
        pytest.param({"mig": {"settleSeconds": -1}}, "settleSeconds", id="no time to settle"),
        pytest.param({"ray": {"address": "ray:8265"}}, "address", id="address without scheme"),
        pytest.param({"metrics": {"port": 99999}}, "port", id="invalid port"),
        pytest.param(
            {"metrics": {"podMonitor": {"sessions": ["traffic"]}}}, "sessions", id="session without namespace"
        ),
        pytest.param({"kuberay": {"workers": {"cpu": "2"}}}, "cpu", id="unknown setting of pods"),
        pytest.param({"logging": {"level": "verbose"}}, "level", id="unknown log level"),
        pytest.param({"logging": {"format": "xml"}}, "format", id="unknown log format"),
        pytest.param({"profiling": {"attempts": 0}}, "attempts", id="no attempts"),
        pytest.param({"profiling": {"versions": {"torch": 2}}}, "torch", id="a version that is not a string"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], want_words: str) -> None:
    with charts.Chart.load(CHART) as chart, pytest.raises(errors.HelmValuesError, match=want_words):
        chart.validate_schema(values)


def test_the_schema_has_every_value() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    with charts.Chart.load(CHART) as chart:
        chart.validate_schema(defaults)
        chart.validate_schema(EVERYTHING)
        assert set(chart.schema["properties"]) - {"global"} == set(defaults)


def test_an_existing_account_needs_a_name() -> None:
    with pytest.raises(errors.HelmRenderError, match=r"serviceAccount\.name"):
        rendered({"serviceAccount": {"create": False}})
