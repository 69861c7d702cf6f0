"""Field ownership on a real API server: Git owns the spec."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, eventually, pool, reason, session

pytestmark = pytest.mark.apiserver

GIT = ("apply", "--server-side", "--field-manager=gitops", "-f", "-")


def owners(document: Json | None, field: str) -> set[str]:
    """The managers that own something below a top-level field."""
    assert document is not None
    return {entry["manager"] for entry in document["metadata"]["managedFields"] if f"f:{field}" in entry["fieldsV1"]}


def owned_metadata(document: Json | None, manager: str) -> set[str]:
    """The fields of metadata that a manager owns."""
    assert document is not None

    def below() -> Iterator[str]:
        for entry in document["metadata"]["managedFields"]:
            if entry["manager"] == manager:
                yield from (name.removeprefix("f:") for name in entry["fieldsV1"].get("f:metadata", {}))

    return set(below())


async def test_the_operator_does_not_own_fields_of_a_spec(namespace: Kubectl, operators: Operators) -> None:
    manifests: list[dict[str, Any]] = [pool("fast", count=16), session("traffic")]
    written = yaml.safe_dump_all(manifests)
    namespace(*GIT, "--dry-run=server", stdin=written)
    assert namespace.get("isess", "traffic") is None, "a dry run creates nothing"
    namespace(*GIT, stdin=written)

    def shown(kind: str, name: str) -> Json | None:
        result = namespace.run("get", kind, name, "-o", "json", "--show-managed-fields")
        found: Json = json.loads(result.stdout)
        return found

    async with operators.running():
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        for kind, name in (("gpool", "fast"), ("isess", "traffic")):
            found = shown(kind, name)
            assert owners(found, "spec") == {"gitops"}
            assert owners(found, "status") == {"partita"}
            assert owned_metadata(found, "partita") == {"finalizers"}
        (plan,) = namespace.list("pplan")
        assert owners(shown("pplan", plan["metadata"]["name"]), "spec") == {"partita"}

        await namespace.wait("annotate", "isess", "traffic", "partita.dev/paused=load test")
        difference = namespace.run("diff", "--server-side", "--field-manager=gitops", "-f", "-", stdin=written)
        assert (difference.returncode, difference.stdout) == (0, ""), "Git and the cluster are equal"
        faster = [pool("fast", count=16), session("traffic", rate={"requestsPerSecond": 60})]
        namespace(*GIT, stdin=yaml.safe_dump_all(faster))  # fails if another manager owns the changed field
        assert owners(shown("isess", "traffic"), "spec") == {"gitops"}
