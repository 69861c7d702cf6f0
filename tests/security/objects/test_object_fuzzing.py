"""Whatever objects the API server stores, reading and reconciling them raises nothing."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration
from tests.crds.documents import Json
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import SUITE, Kubectl, eventually, pool, reason, session
from tests.security.objects.fuzzed_objects import JSON, TEXTS, objects

from partita_api.profile import PROFILE_FILE
from partita_operator.handlers.status_metrics import StatusCollector
from partita_operator.kube.cache import ClusterCache, Kind
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection
from partita_operator.kube.profiles import read_profile
from partita_operator.kube.resources import document, read_pool, read_session
from partita_operator.reconcile.admission import judge_pool, judge_session
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.session.reconciler import reconcile_session
from partita_operator.reconcile.world import PoolWorld, SessionWorld
from partita_operator.settings.model import OperatorSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = OperatorSettings()


@given(objects("InferenceSession"), objects("GPUPool"), objects("PipelinePlan"))
def test_every_stored_object_is_read_reviewed_reconciled_and_measured(session: Json, pool: Json, plan: Json) -> None:
    cache = ClusterCache(KubernetesClient(Connection(Configuration(host="http://127.0.0.1:1"))))
    cache.put(Kind.PLAN, plan)
    cache.put(Kind.POOL, pool)
    cache.put(Kind.SESSION, session)
    cluster = cache.cluster()
    (present,), (selected,) = cluster.sessions.values(), cluster.pools.values()

    decision = reconcile_session(SessionWorld(present, cluster, SETTINGS), NOW)
    document(decision.status)
    document(reconcile_pool(PoolWorld(selected, cluster, SETTINGS), NOW).status)
    judge_session(*read_session(session, None), cluster, SETTINGS)
    judge_pool(*read_pool(pool), cluster)
    collector = StatusCollector()
    collector.show(cluster)
    assert sum(1 for metric in collector.collect() for _ in metric.samples) > 0


@given(st.one_of(TEXTS, JSON.map(json.dumps), st.just("[" * 100_000)))
def test_a_config_map_that_is_no_profile_counts_as_missing(text: str) -> None:
    assert read_profile({"metadata": {"name": "profile-x"}, "data": {PROFILE_FILE: text}}) is None


def generated(kind: str, count: int) -> list[Json]:
    """The first objects that the strategy makes, named by number."""
    made: list[Json] = []

    @settings(max_examples=count, phases=[Phase.generate])
    @given(objects(kind))
    def take(found: Json) -> None:
        labels = {name: "x" for name in found["metadata"]["labels"] if name.isalnum() and name.isascii()}
        name, label, value = f"fuzzed-{len(made)}", *SUITE.split("=")
        meta = {"name": name, "labels": {**labels, label: value}, "annotations": found["metadata"]["annotations"]}
        made.append({**found, "metadata": meta})

    take()
    return made


@pytest.mark.apiserver
async def test_a_cluster_full_of_fuzzed_objects_stops_no_session(
    namespace: Kubectl, operators: Operators, caplog: pytest.LogCaptureFixture
) -> None:
    made = [found for kind in ("GPUPool", "InferenceSession", "PipelinePlan") for found in generated(kind, 60)]
    ample = 1000  # some of the stored sessions get plans, too
    await asyncio.to_thread(namespace.apply, pool("fast", ample), session("traffic", pools=["fast"]))
    async with operators.running():
        for action in (("create",), ("apply", "--server-side", "--force-conflicts", "--subresource=status")):
            listed = {"apiVersion": "v1", "kind": "List", "items": made}
            # Those that a CEL rule refuses are reported, and the others are stored.
            await asyncio.to_thread(namespace.run, *action, "-f", "-", stdin=json.dumps(listed))
        stored = [item["metadata"]["name"] for item in namespace.list("isess")]
        assert len(stored) > 10
        await asyncio.to_thread(namespace.apply, session("later", pools=["fast"]))
        for name in ("traffic", "later"):
            await eventually(lambda name=name: namespace.get("isess", name), lambda s: reason(s) == ("True", "Serving"))
        await eventually(lambda: namespace.list("isess"), lambda found: all(reason(s)[1] for s in found))
        await eventually(lambda: namespace.list("gpool", "-l", SUITE), lambda found: all(reason(p)[1] for p in found))
        await namespace.wait("delete", "isess", "--all")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
