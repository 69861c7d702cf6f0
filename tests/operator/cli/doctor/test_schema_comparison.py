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
    assert same_schema(crd(kind), crd(kind))


def test_a_missing_cel_rule_is_a_difference() -> None:
    assert not same_schema(without(SESSION, "x-kubernetes-validations"), SESSION)


def test_a_missing_field_is_a_difference() -> None:
    older = deepcopy(SESSION)
    del schema(older)["spec"]["properties"]["slo"]
    assert not same_schema(older, SESSION)


def test_another_version_of_the_api_is_a_difference() -> None:
    other = deepcopy(SESSION)
    other["spec"]["versions"][0]["name"] = "v1"
    assert not same_schema(other, SESSION)


def test_texts_are_no_difference_but_a_property_called_description_is() -> None:
    reworded = deepcopy(SESSION)
    schema(reworded)["spec"]["description"] = "other words"
    extended = deepcopy(SESSION)
    schema(extended)["spec"]["properties"]["description"] = {"type": "string"}
    assert same_schema(reworded, SESSION)
    assert not same_schema(extended, SESSION)
