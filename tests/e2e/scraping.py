"""Configurations of Prometheus for the chart: the one of the page, and the one that the Prometheus operator makes."""

import gzip
import os
import re
import urllib.request
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.docs.pages import blocks
from tests.operator.chart.charts import documents
from tests.operator.chart.queries import RULES
from tests.operator.kubectl import Kubectl, foreign_definitions
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import is_running, spawn, stop_all

Json = dict[str, Any]

RELEASE_NAMESPACE: Final = "partita-system"
PAGE: Final = "docs/tasks/monitoring.md"
PROGRAM_VARIABLE: Final = "PROMETHEUS_OPERATOR"
"""Environment variable with the path of the Prometheus operator's program."""
DEFINITIONS_VARIABLE: Final = "PARTITA_PROMETHEUS_CRDS"
_NOBODY: Final = 9
"""A port that no configuration may scrape."""
_VERSION: Final = "v0.85.0"
_KINDS: Final = ("prometheuses", "prometheusrules", "servicemonitors", "podmonitors", "probes")
_URL: Final = f"https://raw.githubusercontent.com/prometheus-operator/prometheus-operator/{_VERSION}/example/prometheus-operator-crd"


@dataclass(frozen=True)
class Discovered:
    """What discovery in Kubernetes finds: Debian's Prometheus is built without it.

    Each target has the labels that discovery gives it. The configuration's own rules keep or drop it, and name it.
    """

    service: Json
    """The chart's Service of the operator."""
    ray_namespace: str
    metrics_port: int
    serve_port: int

    def instead_of_discovery(self, configuration: Json) -> Json:
        """The configuration with these targets in place of its discovery."""
        for scrape in configuration["scrape_configs"]:
            (discovery,) = scrape.pop("kubernetes_sd_configs")
            targets = {"endpointslice": self._behind_services, "pod": self._in_pods}[discovery["role"]]
            namespaces = discovery["namespaces"]["names"]
            scrape["static_configs"] = [
                {"targets": [f"127.0.0.1:{port}"], "labels": labels}
                for port, labels in targets()
                if labels["__meta_kubernetes_namespace"] in namespaces
            ]
        return configuration

    def _behind_services(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The operator, its health port, and another Service with a port of the same name."""
        meta = self.service["metadata"]
        (named,) = [port["name"] for port in self.service["spec"]["ports"]]
        for service, labels, port_name, port in (
            (meta["name"], meta["labels"], named, self.metrics_port),
            (meta["name"], meta["labels"], "health", _NOBODY),
            ("another", {"app": "another"}, named, _NOBODY),
        ):
            yield (
                port,
                {
                    "__meta_kubernetes_namespace": RELEASE_NAMESPACE,
                    "__meta_kubernetes_service_name": service,
                    "__meta_kubernetes_endpointslice_port_name": port_name,
                    "__meta_kubernetes_endpointslice_address_target_kind": "Pod",
                    "__meta_kubernetes_endpointslice_address_target_name": f"{service}-0",
                    "__meta_kubernetes_pod_name": f"{service}-0",
                    "__meta_kubernetes_pod_container_name": "operator",
                    **_label_labels("service", labels),
                },
            )

    def _in_pods(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Ray's head with two ports, and a worker with a port of the same name."""
        for pod, kind, port_name, port in (
            ("ray-head", "head", "serve", self.serve_port),
            ("ray-head", "head", "dashboard", _NOBODY),
            ("ray-worker", "worker", "serve", _NOBODY),
        ):
            yield (
                port,
                {
                    "__meta_kubernetes_namespace": self.ray_namespace,
                    "__meta_kubernetes_pod_name": pod,
                    "__meta_kubernetes_pod_phase": "Running",
                    "__meta_kubernetes_pod_ready": "true",
                    "__meta_kubernetes_pod_container_name": "ray",
                    "__meta_kubernetes_pod_container_port_name": port_name,
                    **_label_labels("pod", {"ray.io/node-type": kind}),
                },
            )


def _label_labels(of: str, labels: Mapping[str, str]) -> dict[str, str]:
    names = {name: re.sub(r"\W", "_", name) for name in labels}
    return {f"__meta_kubernetes_{of}_label_{names[name]}": value for name, value in labels.items()} | {
        f"__meta_kubernetes_{of}_labelpresent_{name}": "true" for name in names.values()
    }


def chart_objects(session: str, ray_namespace: str) -> list[Json]:
    """What the chart makes for a Prometheus that scrapes the operator and this session."""
    by_label = {"enabled": True, "labels": {"release": "prometheus"}}
    values = {
        "metrics": {
            "serviceMonitor": {**by_label, "interval": "1s"},
            "podMonitor": {**by_label, "interval": "1s", "sessions": [session], "namespaces": [ray_namespace]},
            "rules": by_label,
        }
    }
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "Service")
    return [d for d in documents(values) if d["kind"] in kinds and "webhook" not in d["metadata"]["name"]]


def by_the_page(session: str, ray_namespace: str, found: Discovered, token_file: Path) -> Json:
    """The configuration of the page for a Prometheus without the Prometheus operator."""
    (text,) = [block.text for block in blocks(PAGE) if "scrape_configs:" in block.text]
    text = (
        text.replace("/etc/prometheus/partita/default", str(token_file))
        .replace("/default/traffic/", f"/{session}/")
        .replace("[ray]", f"[{ray_namespace}]")
    )
    configuration: Json = yaml.safe_load(text)
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(RULES)]
    return found.instead_of_discovery(configuration)


@contextmanager
def by_the_prometheus_operator(
    installed: Kubectl, objects: Sequence[Json], found: Discovered, directory: Path
) -> Iterator[Json]:
    """The configuration that the Prometheus operator makes of the chart's monitors and rules."""
    program = os.environ.get(PROGRAM_VARIABLE)
    if not program:
        pytest.skip(f"no program of the Prometheus operator: set {PROGRAM_VARIABLE} to its path")
    prometheus = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "all"},
        "spec": {
            "version": "v2.42.0",
            "serviceDiscoveryRole": "EndpointSlice",
            "evaluationInterval": "1s",
            **{
                f"{kind}{selector}": value
                for kind in ("serviceMonitor", "podMonitor", "rule")
                for selector, value in (
                    ("Selector", {"matchLabels": {"release": "prometheus"}}),
                    ("NamespaceSelector", {}),
                )
            },
        },
    }
    log = directory / "prometheus-operator.log"
    (port,) = free_ports(1)
    argv = [program, f"--web.listen-address=127.0.0.1:{port}"]
    with foreign_definitions(installed, [_definition(kind) for kind in _KINDS]):
        installed.apply(*objects, prometheus)
        environment = {**os.environ, "KUBECONFIG": str(installed.kubeconfig)}
        process = spawn(argv, log=log, environment=environment, dies_with_parent=True)

        def secret() -> Json:
            return installed.get("secret", "prometheus-all") or {}

        def files() -> dict[str, str]:
            made: dict[str, str] = (installed.get("configmap", "prometheus-all-rulefiles-0") or {}).get("data", {})
            return made

        try:
            eventually(lambda: (bool(secret().get("data")) and bool(files())) or not is_running(process))
            assert is_running(process), f"the Prometheus operator ended: {log.read_text()[-2000:]}"
            text = gzip.decompress(b64decode(secret()["data"]["prometheus.yaml.gz"])).decode()
            # In the pod of Prometheus, its config-reloader fills in these variables.
            text = text.replace("$(SHARD)", "0").replace("$(POD_NAME)", "prometheus-all-0")
            configuration: Json = yaml.safe_load(text)
            rules = directory / "rules"
            rules.mkdir()
            for name, text in files().items():
                (rules / name).write_text(text)
            configuration["rule_files"] = [f"{rules}/*.yaml"]
            yield found.instead_of_discovery(configuration)
        finally:
            stop_all([process])


def _definition(kind: str) -> Json:
    """From the directory $PARTITA_PROMETHEUS_CRDS, or from the release. Skips the test if neither has it."""
    name, named = f"monitoring.coreos.com_{kind}.yaml", os.environ.get(DEFINITIONS_VARIABLE)
    try:
        if named:
            text = (Path(named) / name).read_text()
        else:
            with urllib.request.urlopen(f"{_URL}/{name}", timeout=5.0) as answer:
                text = answer.read().decode()
    except (OSError, HTTPException) as error:
        pytest.skip(f"no definitions of the Prometheus operator: {error}; put them into ${DEFINITIONS_VARIABLE}")
    found: Json = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found
