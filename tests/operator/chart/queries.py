"""The queries of the chart's rules and dashboard, and the metrics and labels that they use."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml
from tests.operator.chart.charts import CHART

RULES: Final = CHART / "rules" / "partita.yaml"
DASHBOARD: Final = CHART / "dashboards" / "partita.json"

_METRIC = re.compile(r"(?P<name>[\w:]*partita_\w+(?::\w+)?)(?:\{(?P<matchers>[^}]*)\})?")


def rules() -> Iterator[dict[str, Any]]:
    """Every rule: alerts have a field `alert`, recording rules `record`."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def dashboard_queries() -> list[str]:
    """The query of every target of every panel."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = []
    while panels:
        panel = panels.pop(0)
        panels += panel.get("panels", [])
        found += [target["expr"] for target in panel.get("targets", [])]
    return found


def metrics_of(query: str) -> dict[str, set[str]]:
    """The metrics that a query selects, each with the labels that the query uses of it.

    Labels of aggregations and matchings (`by`, `on`) count for all of them.
    """
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", query)
        for label in labels.split(",")
        if label.strip()
    }
    found: dict[str, set[str]] = {}
    for selector in _METRIC.finditer(query):
        matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", selector["matchers"] or "")
        found.setdefault(selector["name"], set()).update(matched, grouped)
    return found
