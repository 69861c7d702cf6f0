"""Sessions of the SDK: manifests from Python and back, and everything that is wrong with them at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import partita
from partita_api.inferencesession import InferenceSession, Slo
from partita_api.manifests import parse_manifests

PHOTO = partita.Tensor([3, 64, 64])


def traffic(**spec: Any) -> partita.Session:
    """A detector, crops of what it finds, and a classifier."""
    return (
        partita.Session("traffic", slo_ms=200, requests_per_second=50, **spec)
        .add_model("detector", entrypoint="shop.models:detector", input=PHOTO)
        .add_function("crop", entrypoint="shop.functions:crop", max_millis=20, after="detector")
        .add_model(
            "classifier",
            entrypoint="shop.models:classifier",
            kwargs={"classes": np.int64(10)},
            input=partita.Tensor([3, 32, 32], np.float16),
            after="crop",
            fan_out={"mean": 1.5, "max": 4},
        )
    )


MANIFEST = """\
apiVersion: partita.dev/v1alpha1
kind: InferenceSession
metadata: {name: traffic, namespace: shop}
spec:
  slo: {latencyMs: 200, attainment: "99.9%"}
  rate: {requestsPerSecond: 50}
  modules:
    - {name: detector, model: {entrypoint: "shop.models:detector"}, input: {shape: [3, 64, 64], dtype: FP32}}
    - {name: crop, function: {entrypoint: "shop.functions:crop", maxMillis: 20}}
    - name: classifier
      model: {entrypoint: "shop.models:classifier", kwargs: {classes: 10}}
      input: {shape: [3, 32, 32], dtype: FP16}
  edges:
    - {from: detector, to: crop}
    - {from: crop, to: classifier, fanOut: {mean: "1.5", max: 4}}
  planner: {marginPercent: 30, shareGpus: true}
  pools: [t4]
"""


def test_an_edge_may_have_a_condition() -> None:
    session = traffic().connect("detector", "crop", when="outputs.score[0] > 0.5", share="20%")
    assert yaml.safe_load(session.manifest())["spec"]["edges"][-1] == {
        "from": "detector",
        "to": "crop",
        "when": "outputs.score[0] > 0.5",
        "share": "20%",
    }


def test_a_function_may_have_an_image() -> None:
    session = traffic().add_function(
        "read", entrypoint="shop.text:read", image="registry/text:1", resources={"cpu": "2"}, after="classifier"
    )
    assert yaml.safe_load(session.manifest())["spec"]["modules"][-1] == {
        "name": "read",
        "function": {"entrypoint": "shop.text:read", "image": "registry/text:1", "resources": {"cpu": "2"}},
    }


def branches(**first: Any) -> partita.Session:
    """A classifier, two experts for some of its answers, and a model after either of them."""
    session = partita.Session("branches", slo_ms=200, requests_per_second=50)
    session.add_model("classifier", entrypoint="shop.models:classifier", input=PHOTO)
    for name, label in (("cars", 0), ("faces", 1)):
        upstream = partita.After("classifier", when=f"outputs[0][0] == {label}", share="25%", **first)
        session.add_model(name, entrypoint=f"shop.models:{name}", input=PHOTO, after=upstream)
    last = [partita.After("cars", fan_out={"mean": 2, "max": 4}), "faces"]
    return session.add_model("last", entrypoint="shop.models:last", input=PHOTO, after=last, join="Any")


def test_each_edge_of_a_module_has_its_own_condition_fan_out_and_map() -> None:
    spec = yaml.safe_load(branches(map={"input": "0"}).manifest())["spec"]
    assert spec["edges"] == [
        {"from": "classifier", "to": "cars", "when": "outputs[0][0] == 0", "share": "25%", "map": {"input": "0"}},
        {"from": "classifier", "to": "faces", "when": "outputs[0][0] == 1", "share": "25%", "map": {"input": "0"}},
        {"from": "cars", "to": "last", "fanOut": {"mean": "2", "max": 4}},
        {"from": "faces", "to": "last"},
    ]
    assert spec["modules"][-1]["join"] == "Any"


def test_a_plan_is_made_for_the_shares_and_the_fan_outs_of_edges() -> None:
    session = branches()
    times = {name: {"t4": {1: 1, 8: 4}} for name in ("classifier", "cars", "faces", "last")}
    pools = [partita.pool("t4", count=8, price_per_hour=1)]
    plan = session.plan(pools=pools, profiles=session.assumed_profiles(times))
    rates = {module.name: float(module.rate) for module in plan.spec.modules}
    assert rates == {"classifier": 50, "cars": 12.5, "faces": 12.5, "last": 37.5}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        pytest.param({"when": "outputs[0] =="}, "spec.edges[0].when", "", id="an expression that ends too early"),
        pytest.param({"share": "20%"}, "spec.edges[0]", "share is of the answers", id="a share without a condition"),
        pytest.param({"fan_out": {"mean": 3, "max": 2}}, "spec", "mean fan-out of 3", id="a mean above its max"),
    ],
)
def test_wrong_edges_are_refused_with_their_field(change: dict[str, Any], field: str, message: str) -> None:
    session = partita.Session("s", slo_ms=200, requests_per_second=50)
    session.add_model("a", entrypoint="shop.models:a", input=PHOTO)
    session.add_model("b", entrypoint="shop.models:b", input=PHOTO, after=partita.After("a", **change))
    with pytest.raises(partita.InvalidSessionError) as error:
        session.validate()
    (problem,) = error.value.problems
    assert (problem.field, message in problem.message) == (field, True), problem


def test_python_becomes_the_manifest_that_a_person_would_write() -> None:
    session = traffic(
        namespace="shop", attainment="99.9%", planner={"marginPercent": 30, "shareGpus": True}, pools=("t4",)
    )

    assert yaml.safe_load(session.manifest()) == yaml.safe_load(MANIFEST)
    assert session.build() == parse_manifests(MANIFEST, "").sessions[0]
    assert (session.name, session.namespace) == ("traffic", "shop")
    assert repr(session) == "Session('traffic': detector, crop, classifier)"


def test_a_manifest_is_read_and_written_without_a_difference(tmp_path: Path) -> None:
    (tmp_path / "traffic.yaml").write_text(MANIFEST)

    assert yaml.safe_load(partita.Session.from_file(tmp_path / "traffic.yaml").manifest()) == yaml.safe_load(MANIFEST)


def test_what_a_cluster_adds_is_left_out() -> None:
    """The output of kubectl get -o yaml."""
    stored = yaml.safe_load(MANIFEST)
    stored["metadata"] |= {
        "uid": "1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
        "finalizers": ["partita.dev"],
        "labels": {"team": "shop"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "mine"},
    }
    stored["status"] = {"observedGeneration": 2, "url": "http://a/b/c"}

    found = yaml.safe_load(partita.Session.from_yaml(yaml.safe_dump(stored)).manifest())

    assert found["metadata"] == {
        "name": "traffic",
        "namespace": "shop",
        "labels": {"team": "shop"},
        "annotations": {"note": "mine"},
    }
    assert "status" not in found


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        pytest.param("a: [", None, "not YAML", id="not YAML"),
        pytest.param("kind: GPUPool", None, "it has: none", id="another kind"),
        pytest.param(f"{MANIFEST}---\n{MANIFEST}", None, "it has: traffic, traffic", id="two"),
        pytest.param(MANIFEST, "shop", "it has: traffic", id="another name"),
        pytest.param("kind: InferenceSession", None, "metadata: Field required", id="no metadata"),
        pytest.param("{kind: InferenceSession, metadata: [a], spec: 1}", None, "spec: Input", id="of other types"),
        pytest.param(MANIFEST.replace("200", "fast"), None, "spec.slo.latencyMs: Input should be", id="a wrong field"),
    ],
)
def test_a_text_without_one_good_session_is_refused(text: str, name: str | None, says: str) -> None:
    with pytest.raises(partita.PartitaError, match=says):
        partita.Session.from_yaml(text, name)


def test_one_session_of_several() -> None:
    other = MANIFEST.replace("name: traffic", "name: other")

    assert partita.Session.from_yaml(f"{MANIFEST}---\n{other}", "other").name == "other"


def test_all_problems_are_told_at_once_by_their_fields() -> None:
    session = partita.Session("Bad_Name", slo_ms=0, requests_per_second=10, plan="x")
    session.add_model("Detector", entrypoint="nowhere", input=partita.Tensor([3, 0], "BF16"))
    session.add_function("crop", entrypoint="shop:crop", fan_out={"mean": "many"}, after="Detector")

    with pytest.raises(partita.InvalidSessionError) as refused:
        session.validate()

    assert {problem.field for problem in refused.value.problems} == {
        "metadata.name",
        "spec.slo.latencyMs",
        "spec.modules[0].name",
        "spec.modules[0].model.entrypoint",
        "spec.modules[0].input.shape[1]",
        "spec.modules[0].input.dtype",
        "spec.edges[0].from",
        "spec.edges[0].fanOut.mean",
        "spec.plan",
    }
    assert all(str(problem) in str(refused.value) for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("session", "field", "says"),
    [
        pytest.param(partita.Session("a", slo_ms=1, requests_per_second=1), "spec.modules", "at least 1", id="empty"),
        pytest.param(
            partita.Session("a", slo_ms=1, requests_per_second=1).add_model("m", entrypoint="a:b"),
            "spec.modules[0]",
            "needs input",
            id="a rule of a module",
        ),
        pytest.param(traffic().connect("crop", "nobody"), "spec", "must name modules", id="a rule of the session"),
        pytest.param(traffic().connect("classifier", "detector"), "spec", "form a cycle", id="a cycle"),
        pytest.param(
            traffic().connect("detector", "classifier"), "spec", "join them in a function", id="a model that joins"
        ),
        pytest.param(traffic().copy(slo_ms=25), "spec", "20", id="no time left for models"),
        pytest.param(traffic().copy(name="a" * 55), "metadata.name", "at most 54", id="a long name"),
    ],
)
def test_problems_beyond_single_fields(session: partita.Session, field: str, says: str) -> None:
    with pytest.raises(partita.InvalidSessionError, match=says) as refused:
        session.manifest()
    assert [problem.field for problem in refused.value.problems] == [field]


def test_a_cell_can_run_again() -> None:
    session = traffic()
    before = session.manifest()

    session.add_model("detector", entrypoint="shop.models:detector", input=PHOTO)
    session.connect("crop", "classifier", {"mean": 1.5, "max": 4})
    assert session.manifest() == before

    session.add_function("crop", entrypoint="shop.functions:other", after="detector")
    assert [module.name for module in session.build().spec.modules] == ["detector", "crop", "classifier"]
    assert [(edge.source, edge.target) for edge in session.build().spec.edges] == [
        ("crop", "classifier"),
        ("detector", "crop"),
    ]


def test_an_endpoint_of_another_server() -> None:
    """As on the page on endpoints."""
    session = traffic().add_endpoint(
        "plates",
        url="http://triton.models.svc:8000",
        model="plate-reader",
        input=partita.Tensor([3, 64, 256]),
        after="crop",
        input_name="image",
        outputs=["characters"],
        max_millis=40,
    )

    assert yaml.safe_load(session.manifest())["spec"]["modules"][-1] == {
        "name": "plates",
        "input": {"shape": [3, 64, 256], "dtype": "FP32"},
        "endpoint": {
            "url": "http://triton.models.svc:8000",
            "model": "plate-reader",
            "inputName": "image",
            "outputs": ["characters"],
            "maxMillis": 40,
        },
    }


def test_a_removed_module_takes_its_edges_along() -> None:
    session = traffic().remove("crop")

    assert [module.name for module in session.build().spec.modules] == ["detector", "classifier"]
    assert session.build().spec.edges == ()


def test_settings_replace_each_other_and_none_removes_one() -> None:
    session = traffic(planner={"marginPercent": 30}).configure(planner={"blocks": 4}, pool_selector=None)
    assert (session.build().spec.planner.margin_percent, session.build().spec.planner.blocks) == (20, 4)

    session.configure(planner=None, slo=Slo(latency_ms=90), priority=np.int32(7))
    found = yaml.safe_load(session.manifest())["spec"]
    assert ("planner" in found, found["slo"], found["priority"]) == (False, {"latencyMs": 90}, 7)


def test_a_copy_shares_nothing_with_the_session() -> None:
    session = traffic()
    before, other = session.manifest(), session.copy(name="other", slo_ms=900, requests_per_second=7)

    other.add_model("more", file=Path("/models/more.pt2"), input=PHOTO)
    other.configure(pools=["t4"])

    found: InferenceSession = other.build()
    assert (found.metadata.name, found.spec.slo.latency_ms, found.spec.rate.requests_per_second) == ("other", 900, 7)
    assert session.manifest() == before


def test_what_the_author_passes_is_copied() -> None:
    kwargs = {"sizes": [1, 2]}
    session = partita.Session("a", slo_ms=100, requests_per_second=1)
    session.add_model("m", entrypoint="a:b", kwargs=kwargs, input=PHOTO)

    kwargs["sizes"].append(3)
    (module,) = session.build().spec.modules
    assert module.model is not None
    assert module.model.kwargs == {"sizes": [1, 2]}


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        pytest.param("FP16", "FP16", id="of the protocol"),
        pytest.param(np.uint8, "UINT8", id="a type of numpy"),
        pytest.param("int64", "INT64", id="a name of numpy"),
        pytest.param(np.zeros(1, np.int32).dtype, "INT32", id="of an array"),
        pytest.param(np.complex64, "complex64", id="not supported"),
        pytest.param("BYTES", "BYTES", id="texts"),
        pytest.param("bfloat", "bfloat", id="unknown"),
    ],
)
def test_element_types(dtype: Any, want: str) -> None:
    assert partita.Tensor([1], dtype).manifest()["dtype"] == want
