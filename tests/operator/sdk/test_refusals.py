"""The SDK refuses what the API server refuses, by the same fields and, for rules between fields, in the same words."""

from typing import Any

import pytest
from tests.crds.conftest import ApiServer, cluster, server
from tests.crds.documents import REMOVED, SESSION, Json, changed
from tests.crds.test_rules import REFUSED

from partita import InvalidSessionError, Problem
from partita.problems import validated

pytestmark = pytest.mark.apiserver

__all__ = ["cluster", "server"]


def problems(document: Json) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSessionError) as refused:
        validated(document)
    return refused.value.problems


def several(*changes: tuple[str, Any]) -> Json:
    """SESSION with all of these changes."""
    document = SESSION
    for path, value in changes:
        document = changed(document, path, value)
    return document


WRONG_FIELDS = [
    pytest.param(several(("spec.slo", REMOVED), ("spec.rate", REMOVED)), id="missing fields"),
    pytest.param(several(("spec.slo.latencyMs", 0), ("spec.rate.requestsPerSecond", -1)), id="bounds"),
    pytest.param(several(("spec.slo.latencyMs", "fast"), ("spec.planner.blocks", 0.5)), id="types"),
    pytest.param(
        several(
            ("spec.modules.0.input.shape", [0, 3, 2**21]),
            ("spec.modules.0.model.entrypoint", "nowhere"),
            ("spec.modules.1.name", "Crop"),
            ("spec.edges.0.fanOut.max", 100),
            ("spec.edges.0.fanOut.mean", "many"),
        ),
        id="fields in lists",
    ),
    pytest.param(
        several(("spec.rate.arrival", "Bursty"), ("spec.objective.type", "Fun"), ("spec.slo.attainment", "99")),
        id="values and patterns",
    ),
    pytest.param(several(("metadata.name", "Bad_Name"), ("spec.priority", 5000)), id="the name and a field"),
    pytest.param(several(("spec.batching", {"modules": {"detector": "Later"}})), id="a value of a map"),
    pytest.param(several(("spec.pools", ["Fast_1"])), id="an item of a list"),
    pytest.param(several(("spec.modules", [])), id="an empty list"),
]


@pytest.mark.parametrize("document", WRONG_FIELDS)
def test_all_wrong_fields_are_those_of_the_api_server(server: ApiServer, document: Json) -> None:
    refused = {complaint.partition(": ")[0] for complaint in server.complaints(document)}
    # It may have checked rules of the whole spec, too, and else says that it has not. The SDK checks them afterwards.
    refused -= {"spec", "<nil>"}

    assert {problem.field for problem in problems(document)} == refused != set()


RULES = [
    pytest.param(changed(*case.values[:3]), id=case.id)
    for case in REFUSED
    if case.values[0]["kind"] == "InferenceSession"
]


@pytest.mark.parametrize("document", RULES)
def test_broken_rules_have_the_field_and_the_words_of_the_api_server(server: ApiServer, document: Json) -> None:
    said = [f"{problem.field}: Invalid value: {problem.message}" for problem in problems(document)]

    assert said == server.complaints(document)


def test_both_take_a_good_session(server: ApiServer) -> None:
    good = changed(SESSION, "spec.edges.0.fanOut", {})

    assert validated(good).metadata.name == "traffic"
    assert server.complaints(good) == []
