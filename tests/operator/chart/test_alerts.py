"""The alerts: promtool accepts and tests them, each has its entry in the runbook, and their metrics exist."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.docs.pages import pasted
from tests.docs.shell import Shell
from tests.operator.chart.charts import EVERYTHING, rendered
from tests.operator.chart.queries import RULES, metrics_of, rules

from partita_operator.reconcile.reasons import Reason
from partita_planner.problem import NoPlanReason

CASES: Final = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
PAGE: Final = "docs/tasks/alerts.md"
RUNBOOK: Final = f"https://github.com/partita/partita/blob/main/{PAGE}"
SEVERITIES: Final = {"critical", "warning", "info"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool; on Debian: apt-get install prometheus"
)


ALERTS: Final = [rule for rule in rules() if "alert" in rule]


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_test_rules_passes(tmp_path: Path) -> None:
    """By the command of the page."""
    (command,) = pasted(PAGE)
    for part in ("charts/partita/rules", "tests/operator/chart/alerts"):
        shutil.copytree(ROOT / part, tmp_path / part)

    done = Shell(tmp_path).run(command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(CASES)


def test_each_alert_fires_in_a_test() -> None:
    """A case expects it by name, with each of its severities."""
    expected = {
        (re.search(r'alertname="(\w+)"', sample["labels"]), re.search(r'severity="(\w+)"', sample["labels"]))
        for path in CASES
        for case in yaml.safe_load(path.read_text())["tests"]
        for test in case.get("promql_expr_test", ())
        for sample in test.get("exp_samples", ())
        if test["expr"].startswith("count by")
    }
    by_query = {(name[1], severity[1]) for name, severity in expected if name and severity}
    by_alert = {
        (test["alertname"], alert["exp_labels"]["severity"])
        for path in CASES
        for case in yaml.safe_load(path.read_text())["tests"]
        for test in case.get("alert_rule_test", ())
        for alert in test.get("exp_alerts", ())
    }
    want = {(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS}
    assert by_query | by_alert == want


def test_each_alert_has_an_entry_in_the_runbook_and_each_entry_an_alert() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert list(dict.fromkeys(rule["alert"] for rule in ALERTS)) == headings


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_is_wrong_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Partita")
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{rule['alert'].lower()}"
    assert rule["annotations"]["description"].endswith(".")


def test_rules_use_metrics_that_exist() -> None:
    known = set(re.findall(r"`(partita_\w+)`", (ROOT / "docs/reference/metrics.md").read_text()))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = {name for rule in rules() for name in metrics_of(rule["expr"])}
    assert used
    assert {re.sub(r"_bucket$", "", name) for name in used} <= known | recorded


def test_rules_use_reasons_that_exist() -> None:
    known = {*Reason, *NoPlanReason}
    used = {
        reason
        for rule in rules()
        for text in re.findall(r'(?:reason|outcome)=~?"([^"]+)"', rule["expr"])
        for reason in text.split("|")
    }
    assert used - {"error"} <= {str(reason) for reason in known}


def test_the_chart_installs_the_rules_and_leads_to_the_runbook_of_the_platform() -> None:
    rule = rendered({"metrics": {"rules": {"enabled": True}}})["PrometheusRule", "partita"]
    assert rule["spec"] == yaml.safe_load(RULES.read_text())

    elsewhere = rendered(EVERYTHING)["PrometheusRule", "partita"]
    urls = {r["annotations"]["runbook_url"] for g in elsewhere["spec"]["groups"] for r in g["rules"] if "alert" in r}
    assert elsewhere["metadata"]["labels"]["release"] == "prometheus"
    assert "https://wiki/partita#partitanoleader" in urls
    assert not any(url.startswith(RUNBOOK) for url in urls)

    assert ("PrometheusRule", "partita") not in rendered()
