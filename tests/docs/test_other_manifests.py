"""Manifests on the pages, of Partita's kinds and of others: an API server takes them, or as much as can be checked."""

import json
import re
from typing import Any, Final

import celpy
import pytest
import yaml
from kubernetes import client
from tests.architecture.sources import ROOT
from tests.docs.pages import Block, all_blocks
from tests.docs.test_yaml import is_manifest, parsed
from tests.operator.kubectl import Kubectl, session

KNOWN: Final = {"GPUPool", "InferenceSession", "Ingress", "RoleBinding", "ClusterRoleBinding"}
"""Kinds that the API server of the tests knows."""
NEWER: Final = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds of newer API servers; Kubernetes' client has their fields."""
OTHERS: Final = {"HTTPRoute", "SecurityPolicy", "PrometheusRule"}
"""Kinds of other projects."""

MANIFESTS: Final = [block for block in all_blocks("yaml") if is_manifest(parsed(block)[0])]
DOCUMENTS: Final = {document["kind"]: document for block in MANIFESTS for document in parsed(block)}


def test_every_kind_is_checked() -> None:
    assert DOCUMENTS.keys() == KNOWN | NEWER | OTHERS


@pytest.mark.apiserver
@pytest.mark.parametrize("block", [b for b in MANIFESTS if parsed(b)[0]["kind"] in KNOWN], ids=str)
def test_the_api_server_takes_it(block: Block, namespace: Kubectl) -> None:
    documents = parsed(block)
    for document in documents:
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = namespace.namespace

    shown = namespace("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert shown.count("created (server dry run)") == len(documents)


@pytest.mark.parametrize("kind", sorted(NEWER))
def test_kubernetes_client_knows_all_fields(kind: str) -> None:
    """A field that it does not know would be missing again."""
    api = client.ApiClient()
    read = api.deserialize(json.dumps(DOCUMENTS[kind]), f"V1{kind}", "application/json")

    assert api.sanitize_for_serialization(read) == DOCUMENTS[kind]


def test_the_policy_on_priorities_refuses_those_above_0() -> None:
    (validation,) = DOCUMENTS["ValidatingAdmissionPolicy"]["spec"]["validations"]
    environment = celpy.Environment()
    program = environment.program(environment.compile(validation["expression"]))

    def allowed(**spec: Any) -> bool:
        return bool(program.evaluate({"object": celpy.json_to_cel(session("traffic", **spec))}))

    assert allowed()
    assert allowed(priority=0)
    assert allowed(priority=-5)
    assert not allowed(priority=1)


def test_the_binding_names_the_policy() -> None:
    policy, binding = (DOCUMENTS[kind] for kind in sorted(NEWER))

    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_the_route_has_the_path_and_the_service_of_the_ingress() -> None:
    route, policy = DOCUMENTS["HTTPRoute"], DOCUMENTS["SecurityPolicy"]
    (rule,), (ingress,) = route["spec"]["rules"], DOCUMENTS["Ingress"]["spec"]["rules"]
    (path,) = ingress["http"]["paths"]
    service = path["backend"]["service"]

    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": path["path"]}}]
    assert rule["backendRefs"] == [{"name": service["name"], "port": service["port"]["number"]}]
    assert route["spec"]["hostnames"] == [ingress["host"]]
    assert [target["name"] for target in policy["spec"]["targetRefs"]] == [route["metadata"]["name"]]


def test_alerts_use_metrics_that_exist() -> None:
    known = set(re.findall(r"`(partita_\w+)", (ROOT / "docs/reference/metrics.md").read_text()))
    rules = [rule for group in DOCUMENTS["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]
    used = {name for rule in rules for name in re.findall(r"partita_\w+", rule["expr"])}

    assert used
    assert used <= known


@pytest.mark.parametrize("block", [*all_blocks("dockerfile")], ids=str)
def test_a_dockerfile_has_what_it_copies(block: Block) -> None:
    """It copies a package that the page names, into a folder on PYTHONPATH, onto an image that the pages build."""
    base, copy, path = block.text.splitlines()
    source, target = copy.removeprefix("COPY ").split()
    folder = path.removeprefix("ENV PYTHONPATH=")
    built = {tag for other in all_blocks("sh") for tag in re.findall(r"-t (\S+)", other.commands)}

    assert base.removeprefix("FROM ") in built
    assert target == f"{folder}/{source}"
    assert f"{source}.models:" in (ROOT / block.page).read_text()


def test_images_are_built_with_extras_that_exist() -> None:
    known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named = {
        extra
        for page in {block.page for block in all_blocks("sh", "yaml", "dockerfile")}
        for extras in re.findall(r"EXTRAS=([a-z0-9]+(?:,[a-z0-9]+)*)", (ROOT / page).read_text())
        for extra in extras.split(",")
    }

    assert {"operator", "serving"} <= named <= set(known)
