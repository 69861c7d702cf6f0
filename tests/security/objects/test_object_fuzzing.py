"""Whatever objects the API server stores, reading and reconciling them raises nothing."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration
from tests.crds.documents import Json
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
