"""A cluster's CRD against the generated one."""

from copy import deepcopy
from typing import Any

import pytest

from partita_api.crd_schema import KINDS, crd
from partita_operator.cli.doctor.schema_comparison import same_schema

SESSION = next(crd(kind) for kind in KINDS if kind.name == "InferenceSession")


def schema(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def without(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return {key: without(value, name) for key, value in node.items() if key != name}
    return [without(item, name) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_generated_schema_is_its_own(kind: Any) -> None:
    assert same_schema(crd(kind), crd(kind), (1, 33))


@pytest.mark.parametrize(("release", "want"), [((1, 20), True), ((1, 25), False), ((1, 33), False)])
def test_dropped_cel_rules_are_a_difference_where_the_server_keeps_them(release: tuple[int, int], want: bool) -> None:
    assert same_schema(without(SESSION, "x-kubernetes-validations"), SESSION, release) is want


def test_a_missing_field_is_a_difference() -> None:
    older = deepcopy(SESSION)
    del schema(older)["spec"]["properties"]["slo"]
    assert not same_schema(older, SESSION, (1, 33))


def test_another_version_of_the_api_is_a_difference() -> None:
    other = deepcopy(SESSION)
    other["spec"]["versions"][0]["name"] = "v1"
    assert not same_schema(other, SESSION, (1, 33))


def test_texts_are_no_difference_but_a_property_called_description_is() -> None:
    reworded = deepcopy(SESSION)
    schema(reworded)["spec"]["description"] = "other words"
    extended = deepcopy(SESSION)
    schema(extended)["spec"]["properties"]["description"] = {"type": "string"}
    assert same_schema(reworded, SESSION, (1, 33))
    assert not same_schema(extended, SESSION, (1, 33))
