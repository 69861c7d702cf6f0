"""What a person sees of the kinds with kubectl."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.crds.documents import PLAN, POOL, SESSION, Json, changed
from tests.operator.handlers.conftest import namespace
from tests.operator.kubectl import Kubectl
from tests.patience import eventually

from partita_api.crd_schema import KINDS, CustomResource, crd, structural_schema
from partita_api.meta import API_VERSION

__all__ = ["namespace"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def documents(path: Path) -> list[Json]:
    """The manifests of Partita's kinds in a file."""
    return [d for d in yaml.safe_load_all(path.read_text()) if d and d.get("apiVersion") == API_VERSION]


APPLIED = {str(path.relative_to(EXAMPLES)): documents(path) for path in sorted(EXAMPLES.rglob("*.yaml"))}
APPLIED = {name: found for name, found in APPLIED.items() if found}


APPLIED["nothing optional"] = [
    {
        **SESSION,
        "spec": {
            **SESSION["spec"],
            "modules": [
                {"name": "one", "model": {"entrypoint": "a:b"}, "input": {"shape": [3, 4, 4]}, "image": {}},
                {"name": "other", "function": {"entrypoint": "a:b"}},
            ],
            "edges": [{"from": "one", "to": "other"}],
        },
    }
]


@pytest.fixture(params=APPLIED)
def manifests(request: pytest.FixtureRequest, namespace: Kubectl) -> Iterator[str]:
    """Manifests, as YAML, of objects that do not exist."""
    placed = [
        changed(d, "metadata.namespace", namespace.namespace) if d["kind"] == "InferenceSession" else d
        for d in APPLIED[request.param]
    ]
    yield yaml.safe_dump_all(placed)
    namespace("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(placed))


@pytest.mark.apiserver
def test_an_unchanged_manifest_changes_nothing(namespace: Kubectl, manifests: str) -> None:
    apply = ("apply", "-f", "-")
    assert all(line.endswith(" created") for line in namespace(*apply, stdin=manifests).splitlines())
    assert all(line.endswith(" unchanged") for line in namespace(*apply, stdin=manifests).splitlines())
    assert namespace("diff", "-f", "-", stdin=manifests) == ""


@pytest.mark.apiserver
def test_an_unchanged_manifest_makes_no_new_version_on_the_server_side(namespace: Kubectl, manifests: str) -> None:
    def versions() -> list[str]:
        apply = ("apply", "--server-side", "-f", "-", "-o", "jsonpath={.metadata.resourceVersion} ")
        return namespace(*apply, stdin=manifests).split()

    versions()
    # The second time the API server stores the default of the status, which a new object does not have yet.
    assert versions() == versions()
    assert namespace("diff", "--server-side", "-f", "-", stdin=manifests) == ""


def fields(schema: Json, *, in_list: bool = False) -> Iterator[tuple[str, Json, bool]]:
    """Name and schema of all fields, and whether they are in the items of a list."""
    for name, field in schema.get("properties", {}).items():
        yield name, field, in_list
        yield from fields(field, in_list=in_list)
    if "items" in schema:
        yield from fields(schema["items"], in_list=True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_descriptions_have_all_defaults_and_lists_have_none(kind: CustomResource) -> None:
    (version,) = crd(kind)["spec"]["versions"]
    given = list(fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    defined = list(fields(structural_schema(kind.spec)))

    assert [name for name, field, in_list in given if in_list and "default" in field] == []
    assert [name for name, field, _ in given if not field.get("description")] == []
    for (name, field, _), (_, original, _) in zip(given, defined, strict=True):
        default = original.get("default", {})
        said = str(default).lower() if isinstance(default, bool) else default
        assert isinstance(default, dict) or field["description"].endswith(f" Default: {said}."), name


@pytest.mark.apiserver
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_explain_shows_all_fields(cluster: Kubectl, kind: CustomResource) -> None:
    known = sorted(name for name, _, _ in fields(structural_schema(kind.spec)))

    def explained() -> list[str]:
        said = cluster("explain", f"{kind.plural}.spec", "--recursive").partition("FIELDS:")[2]
        return sorted(re.findall(r"^ +([\w-]+)\t<", said, re.MULTILINE))

    eventually(lambda: explained() == known)


@pytest.mark.apiserver
def test_explain_shows_descriptions_values_and_defaults(cluster: Kubectl) -> None:
    said = " ".join(cluster("explain", "isess.spec.modules.input.dtype").split())
    assert said.endswith(
        "FIELD: dtype <string> ENUM: FP32 FP16 FP64 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8 BOOL BYTES "
        "DESCRIPTION: Element type. BYTES (texts, encoded files) is not for models. Default: FP32."
    )


@pytest.mark.apiserver
def test_a_dry_run_says_what_is_wrong_and_stores_nothing(namespace: Kubectl) -> None:
    wrong = changed(SESSION, "spec.engine", {"type": "KubeRay", "cluster": "vision"})
    dry_run = ("create", "--dry-run=server", "-f", "-")

    assert namespace(*dry_run, stdin=yaml.safe_dump(SESSION)).endswith("/traffic created (server dry run)\n")
    refused = namespace.run(*dry_run, stdin=yaml.safe_dump(wrong))
    assert refused.returncode == 1
    assert 'The InferenceSession "traffic" is invalid: spec.engine: Invalid value: ' in refused.stderr
    assert "engine.cluster needs engine.type Ray" in refused.stderr
    assert namespace.list("isess") == []


@pytest.mark.apiserver
def test_a_conflict_of_two_managers_names_the_other_one(namespace: Kubectl) -> None:
    def apply(manager: str, latency_ms: int, *options: str) -> str:
        document = yaml.safe_dump(changed(SESSION, "spec.slo.latencyMs", latency_ms))
        result = namespace.run(
            "apply", "--server-side", f"--field-manager={manager}", *options, "-f", "-", stdin=document
        )
        return result.stderr if result.returncode else ""

    assert apply("git", 200) == ""
    assert 'conflict with "git"' in apply("person", 300)
    assert ".spec.slo.latencyMs" in apply("person", 300)
    assert apply("person", 200) == "", "both own the same value"
    assert apply("person", 300, "--force-conflicts") == ""
    assert 'conflict with "person"' in apply("git", 200)


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Serving",
    "message": "It serves.",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("document", "status", "want"),
    [
        pytest.param(
            changed(POOL, "metadata.name", "shown"),
            {"nodes": 2, "capacity": 8, "elastic": {"pending": 6}, "free": "3.5", "idleFraction": "0.25"},
            "NAME NODES CAPACITY PENDING FREE PRICE IDLE READY AGE shown 2 8 6 3.5 0.71 0.25 True",
            id="pool",
        ),
        pytest.param(
            changed(SESSION, "metadata.name", "shown"),
            {
                "url": "http://ray/shown",
                "engine": "Ray",
                "currentPlan": {"name": "shown-1", "costPerHour": "0.71", "throughput": "80"},
                "signals": {"offeredRate": "50", "p99Ms": "120", "badRate": "0.01"},
                "versionShares": "2=10%",
                "conditions": [{**READY, "type": "SLOMet"}, READY],
            },
            "NAME URL SLO SLOMET READY REASON PLAN COST/H RATE P99MS BAD ENGINE VERSIONS AGE "
            "shown http://ray/shown 200 True True Serving shown-1 0.71 50 120 0.01 Ray 2=10%",
            id="session",
        ),
        pytest.param(
            changed(PLAN, "metadata.name", "shown"),
            {},
            "NAME SESSION STRATEGY COST/H THROUGHPUT GAP APPROVED READY REASON AGE "
            "shown traffic partita 0.355 80 0 false True Serving",
            id="plan",
        ),
    ],
)
def test_a_list_has_the_columns_of_its_kind(namespace: Kubectl, document: Json, status: Json, want: str) -> None:
    kind = document["kind"]
    patch: dict[str, Any] = {"status": {"conditions": [READY], **status}}
    namespace.apply(document)
    try:
        namespace("patch", kind, "shown", "--subresource=status", "--type=merge", "-p", yaml.safe_dump(patch))
        *shown, _age = namespace("get", kind, "shown", "-o", "wide").split()
    finally:
        namespace("delete", kind, "shown")
    assert " ".join(shown) == want
