"""The rendered chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[3] / "charts" / "partita"


def files(values: dict[str, Any] | None = None, release: str = "partita") -> dict[str, str]:
    """The templates by their path, rendered without a cluster for namespace partita-system."""
    charts = pytest.importorskip("helm_python.chart", reason="Helm's SDK is missing: pip install helm-python-sdk")
    with charts.Chart.load(CHART) as chart:
        found: dict[str, str] = chart.render(values, name=release, namespace="partita-system")
    return found


def documents(values: dict[str, Any] | None = None, release: str = "partita") -> list[dict[str, Any]]:
    """All objects of the chart, rendered as `files` are."""
    return [
        document
        for path, text in files(values, release).items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry/operator", "tag": "1.2.3"},
    "imagePullSecrets": [{"name": "registry"}],
    "ray": {
        "tokenSecret": {"name": "ray", "key": "token"},
        "tokensSecret": {"name": "ray", "key": "others"},
        "clusters": [{"name": "vision", "address": "http://vision:8265", "namespaces": ["vision"]}],
        "runtimeEnv": {"working_dir": "s3://models/app.zip", "env_vars": {"A": 'with "quotes"'}},
    },
    "kuberay": {
        "image": "registry/serving:1.2.3",
        "imagePullSecrets": ["registry"],
        "head": {"resources": {"cpu": "4"}, "nodeSelector": {"kubernetes.io/os": "linux"}},
        "workers": {"tolerations": [{"key": "x", "operator": "Exists"}]},
        "upgradeStrategy": {"type": "None"},
        "redisSecret": "redis",
        "redisPasswordSecret": {"name": "redis", "key": "operator"},
        "authSecret": "ray",
        "tokenSecret": {"name": "ray", "key": "kuberay"},
    },
    "redis": {
        "enabled": True,
        "image": {"digest": f"sha256:{'0' * 64}"},
        "persistence": {"size": "5Gi", "storageClass": "ssd"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "transport": "ActorCalls",
    "defaultEngine": "KubeRay",
    "exposure": {
        "allowedHosts": ["*.{namespace}.example.com"],
        "allowedIngressClasses": ["nginx"],
        "allowedGateways": ["gateways/public"],
        "allowedAnnotations": ["cert-manager.io/cluster-issuer"],
        "checkedTlsSecrets": ["serve-tls"],
    },
    "clients": {
        "required": "Exposed",
        "allowedSecrets": ["partita-clients", "shop-clients"],
        "issuers": [
            {"issuer": "https://a.example.com", "jwksUri": "https://a.example.com:8443/keys", "namespaces": ["*"]},
            {"issuer": "dex", "jwksUri": "http://dex.dex.svc/keys", "namespaces": ["team-a"], "allowHttp": True},
        ],
    },
    "mig": {"enabled": True, "namespace": "nvidia", "products": []},
    "models": {
        "allowedModules": ["traffic"],
        "allowedFiles": ["/models/"],
        "requireDigest": True,
        "allowedRepositories": ["google/"],
        "allowRemoteCode": True,
        "hubEndpoint": "https://hub.example.com",
        "hubDirectory": "/mnt/hub",
        "hubOffline": True,
    },
    "profiling": {"image": "registry/profiler:1.2.3", "versions": {"torch": "2.13.0"}},
    "metrics": {
        "service": {"annotations": {"prometheus.io/scrape": "true"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "sessions": ["default/traffic", "a/b"],
            "namespaces": ["ray"],
        },
        "rules": {"enabled": True, "labels": {"release": "prometheus"}, "runbookUrl": "https://wiki/partita"},
        "dashboard": {"enabled": True, "annotations": {"folder": "GPUs"}},
    },
    "admission": {"enabled": True, "failurePolicy": "Fail", "timeoutSeconds": 10, "port": 8443},
    "networkPolicies": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"prometheus": "here"}}}],
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
        "profiling": {"namespaces": ["default", "team-a"], "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}]},
        "rayPods": {"namespaces": ["team-a"], "clientPorts": [8000, 9000], "clients": [{"podSelector": {}}]},
    },
    "flowSchema": {"enabled": True},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"c": "d"},
    "podLabels": {"e": "f"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}


def rendered(values: dict[str, Any] | None = None, release: str = "partita") -> dict[tuple[str, str], dict[str, Any]]:
    """All objects by kind and name."""
    return {(o["kind"], o["metadata"]["name"]): o for o in documents(values, release)}


def config_file(values: dict[str, Any] | None = None) -> str:
    """The operator's config file."""
    text: str = rendered(values)["ConfigMap", "partita-config"]["data"]["config.yaml"]
    return text


def pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(values)["Deployment", "partita"]["spec"]["template"]["spec"]
    return spec
