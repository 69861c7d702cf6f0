"""Rules on updates: what may change in a plan, and objects that are older than the rules that they break."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from tests.crds.conftest import ApiServer
from tests.crds.documents import PLAN, Json, changed
from tests.crds.test_rules import REFUSED, pydantic_says
from tests.operator.kubectl import Kubectl
from tests.patience import eventually

from partita_api.crd_schema import KINDS, crd
from partita_api.pipelineplan import PipelinePlanSpec

pytestmark = pytest.mark.apiserver

CHANGES = [
    pytest.param("spec.approved", True, id="approving"),
    pytest.param("spec.modules.0.pipelines.0.batchSize", 8, id="another batch size"),
    pytest.param("spec.modules.0.pipelines.0.stages.0.replicas", 5, id="more replicas"),
    pytest.param("spec.inputsDigest", "ffff", id="other inputs"),
    pytest.param("spec.session.name", "other", id="another session"),
    pytest.param("spec.solution.gap", "0.1", id="another solution"),
    pytest.param("spec.cost.allocatedPerHour", "0", id="another cost"),
    pytest.param("spec.throughput", "1000", id="another throughput"),
    pytest.param("spec.alternatives", [{"strategy": "whole", "feasible": False}], id="other alternatives"),
    pytest.param("spec.profiles", [{"module": "m", "pool": "p", "key": "k"}], id="other profiles"),
    pytest.param("spec.measured", {"edges": []}, id="made for something else"),
]


@pytest.fixture(scope="module")
def plan(server: ApiServer) -> Iterator[Json]:
    """A stored plan, not yet approved."""
    server.store(PLAN)
    yield PLAN
    server.delete(PLAN)


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_only_the_approval_of_a_plan_may_change(server: ApiServer, plan: Json, path: str, value: Any) -> None:
    (rule,) = PipelinePlanSpec.transition_rules
    other = changed(plan, path, value)
    before, after = (PipelinePlanSpec.model_validate(document["spec"]) for document in (plan, other))

    assert rule.allows(before, after) is (path == "spec.approved")
    said = server.complaints_of_spec(other)
    assert said == ([] if path == "spec.approved" else [f"spec: Invalid value: {rule.message}"])


def test_every_field_of_a_plan_is_changed_once() -> None:
    fields = {field.alias for field in PipelinePlanSpec.model_fields.values()}
    assert {str(case.values[0]).split(".")[1] for case in CHANGES} == fields


EARLIER = "before-rules.partita.dev"
"""The group of copies of the kinds, to store objects before there are rules."""


def of_earlier(document: Json, name: str) -> Json:
    return {**document, "apiVersion": f"{EARLIER}/v1alpha1", "metadata": {"name": name}}


STORED = {case.id: of_earlier(changed(*case.values[:3]), f"stored-{number}") for number, case in enumerate(REFUSED)}
"""Objects that break a rule."""


def definitions(*, rules: bool) -> list[Json]:
    """The CRDs of the copies, as they are or without rules."""
    made = [deepcopy(crd(kind)) for kind in KINDS]
    for definition in made:
        spec = definition["spec"]
        spec["group"] = EARLIER
        definition["metadata"]["name"] = f"{spec['names']['plural']}.{EARLIER}"
        spec["names"] = {key: value for key, value in spec["names"].items() if key not in ("shortNames", "categories")}
    return made if rules else [_without_rules(definition) for definition in made]


def _without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_rules(value) for key, value in node.items() if key != "x-kubernetes-validations"}
    return [_without_rules(item) for item in node] if isinstance(node, list) else node


@pytest.fixture(scope="module")
def earlier(server: ApiServer, cluster: Kubectl) -> Iterator[None]:
    """An API server that has objects which its rules refuse."""
    cluster.apply(*definitions(rules=False))
    names = [definition["metadata"]["name"] for definition in definitions(rules=True)]
    try:
        cluster("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
        for document in STORED.values():
            server.store(document)
        cluster.apply(*definitions(rules=True))
        for document in STORED.values():
            new = {**document, "metadata": {"name": "new"}}
            eventually(lambda new=new: server.complaints(new) != [])
        yield
    finally:
        cluster("delete", "crd", *names, "--wait=false")


@pytest.mark.usefixtures("earlier")
@pytest.mark.parametrize("case", STORED)
def test_an_object_that_breaks_a_newer_rule_can_be_changed_elsewhere(server: ApiServer, case: str) -> None:
    document = STORED[case]
    (complaint,) = pydantic_says({**document, "apiVersion": "partita.dev/v1alpha1"})
    place, _, _ = complaint.partition(": ")
    other = "spec.gpusPerNode" if document["kind"] == "GPUPool" else "spec.priority"

    assert server.complaints_of_change(document, "metadata.labels", {"team": "a"}) == []
    assert server.complaints_of_change(document, "status", {"observedGeneration": 1}, subresource="status") == []
    # A rule is checked again if anything in the object changes that it is about.
    assert server.complaints_of_change(document, other, 5) == ([complaint] if place == "spec" else [])
