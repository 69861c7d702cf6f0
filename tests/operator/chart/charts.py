"""The chart as it renders, and as an API server of any version takes it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[3] / "charts" / "partita"


def documents(values: dict[str, Any] | None = None, release: str = "partita") -> list[dict[str, Any]]:
    """All objects of the chart, rendered without a cluster for namespace partita-system."""
    charts = pytest.importorskip("helm_python.chart", reason="Helm's SDK is missing: pip install helm-python-sdk")
    with charts.Chart.load(CHART) as chart:
        manifests = chart.render(values, name=release, namespace="partita-system")
    return [
        document
        for path, text in manifests.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def chart_for(version: str, directory: Path) -> Path:
    """The chart, without what an API server older than 1.25 does not know: the CEL rules of the CRDs."""
    copy = directory / "partita"
    shutil.copytree(CHART, copy)
    if tuple(map(int, version.split(".")[:2])) < (1, 25):
        metadata = yaml.safe_load((copy / "Chart.yaml").read_text())
        del metadata["kubeVersion"]
        (copy / "Chart.yaml").write_text(yaml.safe_dump(metadata))
        for path in (copy / "crds").iterdir():
            path.write_text(yaml.safe_dump(without_rules(yaml.safe_load(path.read_text()))))
    return copy


def without_rules(node: Any) -> Any:
    """A CRD, or a part of it, without its CEL rules."""
    if isinstance(node, dict):
        return {key: without_rules(value) for key, value in node.items() if key != "x-kubernetes-validations"}
    return [without_rules(item) for item in node] if isinstance(node, list) else node
