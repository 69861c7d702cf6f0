"""Every branch of every template of the chart is rendered by some values, and left out by others."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.chart.charts import CHART, EVERYTHING
from tests.operator.engines.kuberay.redis_server import WITH_REDIS

charts = pytest.importorskip("helm_python.chart", reason="Helm's SDK is missing: pip install helm-python-sdk")

OPENING = re.compile(r"^\s*\{\{-? *(?:if|with|range|else)\b.*\}\}\s*$")
"""A line that only opens a branch."""
ELSEWHERE = re.compile(r"fail |\$kept\.data }}|\(lookup ")
"""First lines of branches that fail the rendering or need a cluster: their tests are in `test_chart.py`,
`test_admission_objects.py` and `test_redis.py`.
"""
NOTHING: dict[str, Any] = {
    "replicas": 1,
    "metrics": {"service": {"enabled": False}},
    "serviceAccount": {"create": False, "name": "mine"},
    "rbac": {"create": False, "aggregate": False},
    "ray": {"address": ""},
    "networkPolicies": {"enabled": True, "apiServer": {"cidrs": []}},
}
"""Values that disable every optional part."""
EVERYWHERE: dict[str, Any] = {**EVERYTHING, "scope": "Cluster"}
BY_CERT_MANAGER: dict[str, Any] = {"admission": {"enabled": True, "certManager": {"enabled": True}}}
BY_AN_ISSUER: dict[str, Any] = {
    "admission": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"kind": "Issuer", "name": "ours"}}}
}

WITH_CONSOLE: dict[str, Any] = {**EVERYTHING, "console": {"enabled": True}}
CONSOLE_ALONE: dict[str, Any] = {**NOTHING, "console": {"enabled": True}}
CONSOLE_EVERYWHERE: dict[str, Any] = {**EVERYWHERE, "console": {"enabled": True}, "networkPolicies": {"enabled": False}}
ALL = (EVERYTHING, EVERYWHERE, NOTHING, WITH_CONSOLE, CONSOLE_ALONE, CONSOLE_EVERYWHERE)


def marked(directory: Path) -> tuple[Path, set[str]]:
    """The chart with a comment in each branch of its templates, and all these comments."""
    copy = directory / "partita"
    shutil.copytree(CHART, copy)
    marks: set[str] = set()

    def lines(path: Path) -> Iterator[str]:
        text = path.read_text().splitlines()
        for number, (line, following) in enumerate(zip(text, [*text[1:], ""], strict=True), start=1):
            yield line
            if OPENING.match(line) and not ELSEWHERE.search(following):
                marks.add(f"# branch {path.name}:{number}")
                yield f"# branch {path.name}:{number}"

    for path in sorted((copy / "templates").glob("*.yaml")):
        path.write_text("\n".join(list(lines(path))) + "\n")
    return copy, marks


def test_every_branch_is_rendered_by_some_values_and_not_by_others(tmp_path: Path) -> None:
    chart, marks = marked(tmp_path)
    seen = []
    for values in (None, *ALL, WITH_REDIS, BY_CERT_MANAGER, BY_AN_ISSUER):
        with charts.Chart.load(chart) as loaded:
            manifests = loaded.render(values, name="partita", namespace="partita-system")
        texts = [text for path, text in manifests.items() if path.endswith(".yaml")]
        documents = [document for text in texts for document in yaml.safe_load_all(text)]
        assert all(document is None or {"kind", "metadata"} <= set(document) for document in documents)
        seen.append({mark for mark in marks for text in texts if f"{mark}\n" in f"{text}\n"})
    assert marks - set.union(*seen) == set(), "branches that no values render"
    always = set.intersection(*seen)
    kept = {mark for mark in always if not re.search(r"\b(range|with)\b", line_of(mark))}
    assert kept == set(), "conditions that are true for all values"


def line_of(mark: str) -> str:
    name, _, number = mark.removeprefix("# branch ").rpartition(":")
    return (CHART / "templates" / name).read_text().splitlines()[int(number) - 1]


def test_the_same_values_render_the_same_manifests() -> None:
    """Except the webhook's own certificate: without a cluster to look it up in, each rendering makes a new one."""
    by_others = {**EVERYTHING, **BY_CERT_MANAGER}
    rendered = []
    for _ in range(3):
        with charts.Chart.load(CHART) as chart:
            rendered.append(chart.render(by_others, name="partita", namespace="partita-system"))
    assert rendered[0] == rendered[1] == rendered[2]
