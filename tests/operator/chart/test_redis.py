"""The Redis that the chart brings for the state of Ray's heads."""

import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.operator.chart.charts import CHART, documents, pod, rendered
from tests.operator.engines.kuberay.redis_server import WITH_REDIS, RedisServer, running_redis
from tests.operator.kubectl import Kubectl

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.settings.kuberay import KubeRaySettings

Json = dict[str, Any]
charts = pytest.importorskip("helm_python.chart", reason="Helm's SDK is missing: pip install helm-python-sdk")
config = pytest.importorskip("helm_python.config")
errors = pytest.importorskip("helm_python.errors")
PASSWORD = "s3cr$t#;&|<>(~!)"


def redis_pod(values: Json | None = None) -> Json:
    spec: Json = rendered(values or WITH_REDIS)["StatefulSet", "partita-redis"]["spec"]["template"]["spec"]
    return spec


def with_redis(**redis: Any) -> Json:
    return {**WITH_REDIS, "redis": {"enabled": True, **redis}}


def cli(redis: RedisServer, *command: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "REDISCLI_AUTH": password}
    return subprocess.run(
        ["redis-cli", "-p", str(redis.port), *command], env=variables, capture_output=True, text=True, check=False
    )


def test_there_is_none_by_default() -> None:
    assert not [key for key in rendered() if "redis" in key[1]]


def test_its_pod_is_restricted_and_cannot_use_the_api_server() -> None:
    spec = redis_pod()
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data"]
    assert {"livenessProbe", "readinessProbe", "resources"} <= set(container)


def test_the_operator_and_the_redis_have_the_same_password_and_address() -> None:
    objects = rendered(WITH_REDIS)
    (redis,) = redis_pod()["containers"]
    (operator,) = pod(WITH_REDIS)["containers"]
    (given,) = [v for v in operator["env"] if v["name"] == "PARTITA_OPERATOR__KUBERAY__REDIS_PASSWORD"]
    (required,) = [v for v in redis["env"] if v["name"] == "REDISCLI_AUTH"]
    assert given["valueFrom"] == required["valueFrom"] == {"secretKeyRef": {"name": "ours", "key": "password"}}
    assert ("Secret", "partita-redis") not in objects, "the values name one"

    service = objects["Service", "partita-redis"]
    stateful_set = objects["StatefulSet", "partita-redis"]["spec"]
    labels = stateful_set["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert stateful_set["selector"]["matchLabels"].items() <= labels.items()
    config = objects["ConfigMap", "partita-config"]["data"]["config.yaml"]
    assert "redisAddress: partita-redis.partita-system.svc:6379" in config
    assert service["spec"]["ports"][0]["port"] == redis["ports"][0]["containerPort"] == 6379


def test_an_upgrade_of_the_chart_does_not_restart_it() -> None:
    template = rendered(WITH_REDIS)["StatefulSet", "partita-redis"]["spec"]["template"]
    assert set(template["metadata"]["labels"]) == {
        f"app.kubernetes.io/{word}" for word in ("name", "instance", "component")
    }


@pytest.mark.parametrize(
    ("image", "want"),
    [
        pytest.param({"repository": "registry/redis", "tag": "7.4.6"}, "registry/redis:7.4.6", id="a tag"),
        pytest.param({"digest": f"sha256:{'0' * 64}"}, f"redis@sha256:{'0' * 64}", id="a digest replaces the tag"),
    ],
)
def test_its_image_is_named_by_tag_or_digest(image: Json, want: str) -> None:
    (container,) = redis_pod(with_redis(image=image))["containers"]
    assert container["image"] == want


@pytest.mark.parametrize(
    ("persistence", "want"),
    [
        pytest.param({}, {"resources": {"requests": {"storage": "1Gi"}}}, id="by default"),
        pytest.param(
            {"size": "5Gi", "storageClass": "ssd"},
            {"storageClassName": "ssd", "resources": {"requests": {"storage": "5Gi"}}},
            id="a size and a class",
        ),
    ],
)
def test_its_state_is_on_a_volume(persistence: Json, want: Json) -> None:
    stateful_set = rendered(with_redis(persistence=persistence))["StatefulSet", "partita-redis"]["spec"]
    (claim,) = stateful_set["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], **want}


def test_only_heads_cleanup_jobs_and_the_operator_may_connect() -> None:
    values = {**WITH_REDIS, "scope": "Cluster", "networkPolicies": {"enabled": True}}
    objects = rendered(values)
    policy = objects["NetworkPolicy", "partita-redis"]["spec"]
    (rule,) = policy["ingress"]
    operator, heads = rule["from"]
    operator_labels = objects["Deployment", "partita"]["spec"]["template"]["metadata"]["labels"]
    redis_labels = objects["StatefulSet", "partita-redis"]["spec"]["template"]["metadata"]["labels"]
    head = rayservice("vision", [], [], None, KubeRaySettings(image="x"))["spec"]["rayClusterConfig"]["headGroupSpec"]
    assert operator["podSelector"]["matchLabels"].items() <= operator_labels.items()
    assert policy["podSelector"]["matchLabels"].items() <= redis_labels.items()
    assert heads["podSelector"]["matchLabels"].items() <= head["template"]["metadata"]["labels"].items()
    (expression,) = heads["podSelector"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("ray.io/node-type", ["head", "redis-cleanup"])
    assert heads["namespaceSelector"] == {}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    to_redis = objects["NetworkPolicy", "partita"]["spec"]["egress"][-1]
    assert to_redis == {"ports": [{"port": 6379, "protocol": "TCP"}]}

    scoped = rendered({**values, "scope": "Namespaces", "namespaces": ["team-a"]})["NetworkPolicy", "partita-redis"][
        "spec"
    ]
    (names,) = scoped["ingress"][0]["from"][1]["namespaceSelector"]["matchExpressions"]
    assert names["values"] == ["team-a"]
    assert ("NetworkPolicy", "partita-redis") not in rendered(WITH_REDIS)


@pytest.mark.parametrize(
    ("values", "want_words"),
    [
        pytest.param(
            {"kuberay": {"image": "x"}}, r"kuberay\.redisPasswordSecret where manifests are rendered", id="no cluster"
        ),
        pytest.param(
            {"kuberay": {**WITH_REDIS["kuberay"], "redisAddress": "redis:6379"}}, "names another one", id="two"
        ),
        pytest.param({"kuberay": {"redisPasswordSecret": {"name": "ours"}}}, r"needs kuberay\.image", id="no heads"),
    ],
)
def test_values_that_contradict_it_are_refused(values: Json, want_words: str) -> None:
    with pytest.raises(errors.HelmRenderError, match=want_words):
        documents({"redis": {"enabled": True}, **values})


@pytest.mark.parametrize(
    ("redis", "want_words"),
    [
        pytest.param({"persistence": {"size": "large"}}, "size", id="no size"),
        pytest.param({"image": {"repository": "redis", "tag": ""}}, "tag", id="no tag"),
        pytest.param({"replicas": 3}, "replicas", id="unknown value"),
    ],
)
def test_wrong_values_are_refused_by_name(redis: Json, want_words: str) -> None:
    with charts.Chart.load(CHART) as chart, pytest.raises(errors.HelmValuesError, match=want_words):
        chart.validate_schema({"redis": redis})


def test_redis_runs_by_the_command_of_the_pod(tmp_path: Path) -> None:
    probes = [redis_pod()["containers"][0][f"{kind}Probe"]["exec"]["command"] for kind in ("liveness", "readiness")]
    with running_redis(tmp_path, PASSWORD) as redis:
        for probe in probes:
            assert cli(redis, *probe[1:]).returncode == 0
        assert cli(redis, *probes[1][1:], password="another").returncode != 0
        assert cli(redis, "set", "key", "kept").stdout == "OK\n"
        assert PASSWORD not in Path(f"/proc/{redis.process.pid}/cmdline").read_text()
    with running_redis(tmp_path, "another") as again:
        assert cli(again, "get", "key", password="another").stdout == "kept\n"


@pytest.mark.apiserver
def test_a_password_of_the_chart_is_random_and_stays_over_upgrades(control_plane: ControlPlane) -> None:
    namespace = f"redis-{uuid4().hex[:8]}"
    users = Kubectl(control_plane.kubeconfig, namespace)
    values = {"redis": {"enabled": True}, "kuberay": {"image": "x"}}

    def password() -> str:
        secret = users.get("secret", "partita-redis")
        assert secret is not None
        return b64decode(secret["data"]["password"]).decode()

    with config.Config(kubeconfig_path=control_plane.kubeconfig, namespace=namespace) as helm:
        helm.install(str(CHART), "partita", values, create_namespace=True, timeout=60)
        try:
            made = password()
            assert len(made) == 40
            helm.upgrade(str(CHART), "partita", {**values, "resyncSeconds": 6}, timeout=60)
            assert password() == made

            users("delete", "secret", "partita-redis")
            helm.upgrade(str(CHART), "partita", values, timeout=60)
            assert password() != made
        finally:
            helm.uninstall("partita", timeout=60)
            users("delete", "namespace", namespace, "--wait=false")
