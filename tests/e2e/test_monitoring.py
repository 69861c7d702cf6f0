"""A real Prometheus scrapes the operator and the frontends, and answers every query of the rules and the dashboard."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.e2e.conftest import IMAGE, System, emulated, until_ready
from tests.e2e.prometheus import Prometheus, installed_prometheus, running_prometheus
from tests.e2e.scraping import (
    RELEASE_NAMESPACE,
    Discovered,
    by_the_page,
    by_the_prometheus_operator,
    chart_objects,
)
from tests.operator.chart.queries import dashboard_queries, metrics_of, rules
from tests.operator.kubectl import Json, Kubectl, eventually, new_namespace
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import steady_load

from partita_operator.engines.monitoring_tokens import SECRET

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]

SESSION: Final = "emulated"

ABSENT: Final = {
    "partita_admission_certificate_expiry_timestamp_seconds": "the admission webhook is off here",
}
"""Metrics of queries that do not exist here, with the reason."""

QUERIES: Final = [*(rule["expr"] for rule in rules()), *dashboard_queries()]


def needed_labels() -> dict[str, set[str]]:
    """The metrics of all queries, each with the labels that some query uses."""
    found: dict[str, set[str]] = {}
    for query in QUERIES:
        for metric, labels in metrics_of(query).items():
            found.setdefault(metric, set()).update(labels)
    return found


@contextmanager
def configured(how: str, system: System, namespace: Kubectl, directory: Path) -> Iterator[Json]:
    """A configuration of Prometheus for the session of this namespace."""
    session = f"{namespace.namespace}/{SESSION}"
    objects = chart_objects(session, namespace.namespace)
    (service,) = [found for found in objects if found["kind"] == "Service"]
    token = system.monitoring_token(namespace.namespace)
    discovered = Discovered(service, namespace.namespace, system.metrics_port, system.ray.serve_http_port)
    if how == "the page":
        token_file = directory / "token"
        token_file.write_text(token)
        yield by_the_page(session, namespace.namespace, discovered, token_file)
        return
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": RELEASE_NAMESPACE},
        "stringData": {namespace.namespace: token},
    }
    with (
        new_namespace(namespace.kubeconfig, RELEASE_NAMESPACE) as installed,
        by_the_prometheus_operator(installed, [*objects, secret], discovered, directory) as configuration,
    ):
        yield configuration


@pytest.mark.parametrize("how", ["the page", "the Prometheus operator"])
async def test_prometheus_finds_what_the_rules_and_the_dashboard_ask_for(
    how: str, system: System, namespace: Kubectl, tmp_path: Path
) -> None:
    installed_prometheus()
    namespace.apply(emulated())
    await until_ready(namespace, SESSION)

    with (
        configured(how, system, namespace, tmp_path) as configuration,
        running_prometheus(configuration, tmp_path) as prometheus,
    ):
        async with load(system, namespace):
            await eventually(lambda: absent(prometheus), lambda metrics: metrics == ABSENT.keys())
            await eventually(prometheus.rules, lambda found: all(rule["health"] != "unknown" for rule in found))

            both_targets_are_up(prometheus)
            series_have_the_labels_that_queries_use(prometheus)
            every_rule_is_evaluated(prometheus)
            every_query_of_the_dashboard_is_answered(prometheus, f"{namespace.namespace}/{SESSION}")
            assert not prometheus.active_alerts() & {"PartitaOperatorAbsent", "PartitaNoLeader"}

        system.kill_operator()
        await eventually(prometheus.active_alerts, lambda names: "PartitaOperatorAbsent" in names)


def absent(prometheus: Prometheus) -> set[str]:
    """Metrics of queries without a series."""
    return {metric for metric in needed_labels() if not prometheus.labels_of(metric)}


def both_targets_are_up(prometheus: Prometheus) -> None:
    targets = prometheus.targets()
    assert {target["health"] for target in targets} == {"up"}, targets
    assert len(targets) == 2, "the operator and the session's frontend, each once"


def series_have_the_labels_that_queries_use(prometheus: Prometheus) -> None:
    for metric, used in needed_labels().items():
        for labels in prometheus.labels_of(metric):
            assert used <= labels, metric
            assert not [label for label in labels if label.startswith("exported_")], f"{metric}: a target has its label"


def every_rule_is_evaluated(prometheus: Prometheus) -> None:
    def by_name(found: list[Mapping[str, Any]], *fields: str) -> list[str]:
        return sorted(next(rule[field] for field in fields if field in rule) for rule in found)

    evaluated = prometheus.rules()
    assert by_name([*evaluated], "name") == by_name([*rules()], "alert", "record")
    assert [(rule["name"], rule.get("lastError")) for rule in evaluated if rule["health"] != "ok"] == []


def every_query_of_the_dashboard_is_answered(prometheus: Prometheus, session: str) -> None:
    """Queries with a comparison show what is wrong, and nothing is wrong."""
    for query in dashboard_queries():
        found = prometheus.query(query.replace("$session", session).replace("$__rate_interval", "1m"))
        assert bool(found) != (" == 0" in query), f"{query}: {found}"
    assert prometheus.get("label/session/values", **{"match[]": "partita_session_slo_seconds"}) == [session]


@asynccontextmanager
async def load(system: System, namespace: Kubectl) -> AsyncIterator[None]:
    """Requests to the session for the duration of an `async with` block."""
    url, ended = f"http://{system.endpoint(namespace.namespace, SESSION)}/v2/models/{SESSION}/infer", asyncio.Event()
    sending = asyncio.create_task(steady_load(url, IMAGE[None], 3, lambda _: ended.is_set(), PATIENCE_SECONDS))
    try:
        yield
    finally:
        ended.set()
        sent = await sending
    assert sent.statuses[200] > 0
