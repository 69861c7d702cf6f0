"""Whatever objects the API server stores, the console shows them."""

from datetime import UTC, datetime

from hypothesis import given
from kubernetes.aio.client import Configuration
from tests.crds.documents import Json
from tests.security.objects.fuzzed_objects import objects

from partita_operator.console.reading.snapshot import ClusterSnapshot, ObjectEvents
from partita_operator.console.views.pools import pool_page, pool_rows
from partita_operator.console.views.session_page import plan_page, session_page
from partita_operator.console.views.sessions import SessionQuery, sessions_part
from partita_operator.console.web.pages import environment, render
from partita_operator.kube.cache import ClusterCache, Kind
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEMPLATES = environment()


@given(objects("InferenceSession"), objects("GPUPool"), objects("PipelinePlan"))
def test_every_stored_object_is_shown(session: Json, pool: Json, plan: Json) -> None:
    """With the plan as the session's current plan, where the status can have one."""
    name = plan["metadata"]["name"]
    plan["spec"]["session"] = {"name": session["metadata"]["name"], "uid": session["metadata"]["uid"]}
    session["status"]["currentPlan"] = {"name": name, "costPerHour": "1", "throughput": "1"}
    session["status"]["history"] = [name, "gone"]
    cache = ClusterCache(KubernetesClient(Connection(Configuration(host="http://127.0.0.1:1"))))
    for kind, document in ((Kind.PLAN, plan), (Kind.POOL, pool), (Kind.SESSION, session)):
        cache.put(kind, document)
    cluster = cache.cluster()
    snapshot = ClusterSnapshot(cluster=cluster, seen_at=NOW)

    def shown(template: str, **data: object) -> str:
        return render(TEMPLATES, template, NOW, snapshot=snapshot, server="https://cluster", **data)

    (key,) = cluster.sessions
    rows = sessions_part(cluster.sessions.values(), SessionQuery())
    pages = [
        shown("overview", pools=pool_rows(cluster), sessions=rows),
        shown("session", session=session_page(snapshot, key), events=ObjectEvents()),
        shown("pool", pool=pool_page(snapshot, pool["metadata"]["name"]), events=ObjectEvents()),
    ]
    if cluster.plans_of(cluster.sessions[key]):
        pages.append(shown("plan", page=plan_page(snapshot, key, name)))

    assert all(page.encode() for page in pages)
