"""A real API server takes the CRDs and good manifests, and refuses wrong ones with words that help."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.crds.conftest import ApiServer
from tests.crds.documents import PLAN, POOL, REMOVED, SESSION, Json, changed
from tests.crds.largest import large_plan, largest_pool, largest_session, most_size_classes
from tests.operator.kubectl import Kubectl

pytestmark = pytest.mark.apiserver
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("document", [SESSION, POOL, PLAN], ids=lambda document: document["kind"])
def test_good_manifests_are_taken(server: ApiServer, document: Json) -> None:
    assert server.complaints(document) == []


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/manifests/*.yaml")), ids=lambda path: f"{path.parts[-3]}/{path.stem}"
)
def test_examples_are_taken(server: ApiServer, path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    assert [server.complaints(document) for document in documents] == [[]] * len(documents)


MODULE = SESSION["spec"]["modules"][0]


def test_the_largest_manifests_are_within_the_budget_of_rules(server: ApiServer) -> None:
    """The API server ends the evaluation of rules that cost too much, and refuses the manifest."""
    assert server.complaints(largest_session()) == []
    assert server.complaints(most_size_classes()) == []
    assert server.complaints(largest_pool()) == []


def test_a_plan_as_large_as_the_store_permits_can_be_approved(server: ApiServer) -> None:
    plan = large_plan()
    server.store(plan)
    try:
        assert server.complaints_of_change(plan, "spec.approved", True) == []
        (refused,) = server.complaints_of_change(plan, "spec.throughput", "1")
        assert "only spec.approved" in refused
    finally:
        server.delete(plan)


@pytest.mark.parametrize(
    ("document", "path", "value", "want"),
    [
        pytest.param(SESSION, "spec", REMOVED, "spec: Required value", id="no spec"),
        pytest.param(SESSION, "spec.slo", REMOVED, "spec.slo: Required value", id="no SLO"),
        pytest.param(SESSION, "spec.slo.latencyMs", 0, "spec.slo.latencyMs: Invalid value: 0", id="SLO of 0 ms"),
        pytest.param(SESSION, "spec.slo.latencyMs", 0.5, "spec.slo.latencyMs", id="SLO in fractions of a ms"),
        pytest.param(SESSION, "spec.slo.latencyMs", "200ms", "spec.slo.latencyMs", id="SLO with a unit"),
        pytest.param(SESSION, "spec.slo.attainment", "99", "spec.slo.attainment", id="attainment without %"),
        pytest.param(
            SESSION,
            "spec.rate.requestsPerSecond",
            0,
            "spec.rate.requestsPerSecond: Invalid value: 0",
            id="rate of 0",
        ),
        pytest.param(SESSION, "spec.rate.requestsPerSecond", -5, "spec.rate.requestsPerSecond", id="negative rate"),
        pytest.param(SESSION, "spec.rate.arrival", "Bursty", '"Poisson", "Gamma", "Uniform"', id="unknown arrivals"),
        pytest.param(SESSION, "spec.modules", [], "spec.modules", id="no modules"),
        pytest.param(SESSION, "spec.modules.0.name", "Detector", "spec.modules[0].name", id="upper-case module name"),
        pytest.param(SESSION, "spec.modules.1.name", "detector", "Duplicate value", id="two modules of one name"),
        pytest.param(
            SESSION,
            "spec.modules",
            [{**MODULE, "name": f"m{i}"} for i in range(33)],
            "at most 32 items",
            id="too many modules",
        ),
        pytest.param(
            SESSION, "spec.modules.0.model.entrypoint", "no colon", "spec.modules[0].model.entrypoint", id="entrypoint"
        ),
        pytest.param(
            SESSION, "spec.modules.0.input.shape", [3, 0], "spec.modules[0].input.shape[1]", id="empty dimension"
        ),
        pytest.param(SESSION, "spec.modules.0.input.dtype", "BF16", '"FP32", "FP16"', id="unknown dtype"),
        pytest.param(SESSION, "spec.edges.0.fanOut.mean", "many", "spec.edges[0].fanOut.mean", id="fan-out in words"),
        pytest.param(SESSION, "spec.edges.0.fanOut.max", 1000, "spec.edges[0].fanOut.max", id="fan-out without bound"),
        pytest.param(SESSION, "spec.planner.maxBatchSize", 65, "spec.planner.maxBatchSize", id="batch too large"),
        pytest.param(SESSION, "spec.availability", {"surviveLoss": "Node"}, '"Replica", "Pool"', id="loss of a node"),
        pytest.param(SESSION, "spec.availability", {"minReplicas": 2}, "surviveLoss: Required value", id="no loss"),
        pytest.param(
            SESSION,
            "spec.availability",
            {"surviveLoss": "Replica", "servedShare": "0.5"},
            "spec.availability.servedShare",
            id="served share without %",
        ),
        pytest.param(SESSION, "spec.planner.approval", "Maybe", '"Automatic", "Manual"', id="unknown approval"),
        pytest.param(
            SESSION, "spec.engine.cluster", "http://ray:8265", "spec.engine.cluster", id="address of a cluster"
        ),
        pytest.param(
            SESSION,
            "spec.frontend",
            {"requestLog": {"sink": "http://user@sink/"}},
            "spec.frontend.requestLog.sink",
            id="a sink with a user",
        ),
        pytest.param(
            SESSION,
            "spec.frontend",
            {"requestLog": {"sink": "http://sink/", "sample": "5"}},
            "spec.frontend.requestLog.sample",
            id="a sample without %",
        ),
        pytest.param(
            SESSION,
            "spec.frontend",
            {"requestLog": {"sink": "http://sink/", "maxBodyBytes": 1 << 30}},
            "spec.frontend.requestLog.maxBodyBytes",
            id="bodies of any size in a log",
        ),
        pytest.param(
            SESSION,
            "spec.frontend",
            {"requestLog": {"sink": "http://sink/", "authorization": {"secretName": "sink", "key": "../token"}}},
            "spec.frontend.requestLog.authorization.key",
            id="a key outside of its Secret",
        ),
        pytest.param(
            SESSION,
            "spec.batching",
            {"elsa": {"alphaPercent": 0}},
            "spec.batching.elsa.alphaPercent: Invalid value: 0",
            id="no weight",
        ),
        pytest.param(SESSION, "spec.objective.type", "Fun", '"Cost", "Power", "Throughput"', id="unknown objective"),
        pytest.param(
            SESSION,
            "spec.versions",
            [{"name": "2", "session": "other/traffic"}],
            "spec.versions[0].session",
            id="a version of another namespace",
        ),
        pytest.param(
            SESSION, "spec.versions", [{"name": "a/b", "session": "b"}], "spec.versions[0].name", id="name of a version"
        ),
        pytest.param(
            SESSION,
            "spec.quality",
            {"samples": {"configMap": "../other"}, "metric": "Top1", "limit": "0.9"},
            "spec.quality.samples.configMap",
            id="samples of another namespace",
        ),
        pytest.param(SESSION, "spec.pools", ["Fast_1"], "spec.pools", id="pool name"),
        pytest.param(POOL, "spec.count", -1, "spec.count", id="negative count"),
        pytest.param(POOL, "spec.pricePerHour", "-1", "spec.pricePerHour", id="negative price"),
        pytest.param(POOL, "spec.bandwidth", "fast", "spec.bandwidth", id="bandwidth in words"),
        pytest.param(POOL, "spec.sharing.mode", "Time", '"Whole", "MPS", "MIG", "CPU"', id="unknown sharing"),
        pytest.param(POOL, "spec.sharing.maxDivisor", 16, "spec.sharing.maxDivisor", id="divided too far"),
        pytest.param(POOL, "spec.gpusPerNode", 0, "spec.gpusPerNode", id="no GPUs in a node"),
        pytest.param(PLAN, "spec.modules.0.pipelines.0.stages", [], "stages", id="pipeline without stages"),
        pytest.param(PLAN, "spec.solution", REMOVED, "spec.solution: Required value", id="no solution"),
    ],
)
def test_wrong_manifests_are_refused_by_field(
    server: ApiServer, document: Json, path: str, value: Any, want: str
) -> None:
    assert want in "\n".join(server.complaints(changed(document, path, value)))


def test_defaults_are_filled_in_by_the_server(cluster: Kubectl) -> None:
    made = yaml.safe_load(cluster("create", "--dry-run=server", "-o", "yaml", "-f", "-", stdin=yaml.safe_dump(SESSION)))
    assert made["spec"]["planner"]["strategy"] == "partita"
    assert made["spec"]["objective"]["type"] == "Cost"
    assert made["spec"]["autoscaling"]["mode"] == "Enabled"


def test_kinds_have_short_names_and_a_category(cluster: Kubectl) -> None:
    listed = cluster("api-resources", "--api-group=partita.dev", "--no-headers", "-o", "wide")
    assert all(short in listed for short in ("gpool", "isess", "pplan"))
    assert listed.count("partita") >= 3
