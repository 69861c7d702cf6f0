"""Manifests on the pages, of Partita's kinds and of others: an API server takes them, or as much as can be checked."""

import re
from copy import deepcopy
from typing import Any, Final

import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.docs.pages import Block, all_blocks, blocks
from tests.docs.test_yaml import is_manifest, parsed
from tests.operator.kubectl import Kubectl, session
from tests.patience import eventually

from partita_operator.engines.kuberay.authentication import tls_name
from partita_operator.reconcile.session.exposure.service import PORTS
from partita_operator.settings.kuberay import KubeRaySettings

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
KNOWN: Final = {"GPUPool", "InferenceSession", "Ingress", "RoleBinding", "ClusterRoleBinding", POLICY, BINDING}
"""Kinds that the API server of the tests knows."""
OTHERS: Final = {"Certificate", "HTTPRoute", "NodePool", "SecurityPolicy"}
"""Kinds of other projects."""

MANIFESTS: Final = [block for block in all_blocks("yaml") if is_manifest(parsed(block)[0])]
DOCUMENTS: Final = {document["kind"]: document for block in MANIFESTS for document in parsed(block)}


def test_every_kind_is_checked() -> None:
    assert DOCUMENTS.keys() == KNOWN | OTHERS


@pytest.mark.apiserver
@pytest.mark.parametrize("block", [b for b in MANIFESTS if parsed(b)[0]["kind"] in KNOWN], ids=str)
def test_the_api_server_takes_it(block: Block, namespace: Kubectl) -> None:
    documents = parsed(block)
    for document in documents:
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = namespace.namespace

    shown = namespace("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert shown.count("created (server dry run)") == len(documents)


@pytest.mark.apiserver
def test_the_policy_refuses_priorities_above_0_except_in_one_namespace(namespace: Kubectl) -> None:
    tested = {"policy": "tested"}
    policy, binding = DOCUMENTS[POLICY], deepcopy(DOCUMENTS[BINDING])
    (excepted,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    excepted["values"] = [namespace.namespace]
    binding["spec"]["matchResources"]["objectSelector"] = {"matchLabels": tested}

    def labelled(name: str, **spec: Any) -> dict[str, Any]:
        document = session(name, **spec)
        document["metadata"]["labels"] = tested
        return document

    def refusal(there: Kubectl, **spec: Any) -> str:
        document = yaml.safe_dump(labelled("traffic", **spec))
        result = there.run("create", "--dry-run=server", "-f", "-", stdin=document)
        return result.stderr if result.returncode else ""

    elsewhere = Kubectl(namespace.kubeconfig, "default")
    elsewhere.apply(labelled("older", priority=1))
    namespace.apply(policy, binding)
    try:
        eventually(lambda: "spec.priority above 0 is reserved for team-a" in refusal(elsewhere, priority=1))
        assert [refusal(elsewhere, **spec) for spec in ({}, {"priority": 0}, {"priority": -5})] == [""] * 3
        assert refusal(namespace, priority=1) == ""
        finalizers = ("patch", "isess", "older", "--type=merge", "-p", '{"metadata":{"finalizers":["a/b"]}}')
        assert "is reserved for team-a" in elsewhere.run(*finalizers).stderr
    finally:
        elsewhere("delete", "isess", "older")
        namespace("delete", BINDING, binding["metadata"]["name"])
        namespace("delete", POLICY, policy["metadata"]["name"])


def test_the_route_has_the_path_and_the_service_of_the_ingress() -> None:
    route, policy = DOCUMENTS["HTTPRoute"], DOCUMENTS["SecurityPolicy"]
    (rule,), (ingress,) = route["spec"]["rules"], DOCUMENTS["Ingress"]["spec"]["rules"]
    (path,) = ingress["http"]["paths"]
    service = path["backend"]["service"]

    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": path["path"]}}]
    assert rule["backendRefs"] == [{"name": service["name"], "port": PORTS[service["port"]["name"]]}]
    assert route["spec"]["hostnames"] == [ingress["host"]]
    assert [target["name"] for target in policy["spec"]["targetRefs"]] == [route["metadata"]["name"]]


def test_the_certificate_is_the_one_that_the_settings_name() -> None:
    certificate = DOCUMENTS["Certificate"]
    settings = [parsed(block)[0] for block in blocks("docs/tasks/transport-tls.md") if block.language == "yaml"]
    (named,) = [
        KubeRaySettings.model_validate(found["kuberay"]) for found in settings if "Secret" in str(found.get("kuberay"))
    ]

    assert certificate["spec"]["secretName"] == named.transport_tls_secret
    assert certificate["spec"]["dnsNames"] == [tls_name(certificate["metadata"]["namespace"])]


@pytest.mark.parametrize("block", [*all_blocks("dockerfile")], ids=str)
def test_a_dockerfile_has_what_it_copies(block: Block) -> None:
    """It copies a package that the page names, into a folder on PYTHONPATH, onto an image that the pages build.

    What it installs before has the version of the lock, and the image's user is that of the recipe again.
    """
    base, *steps, copy, path = block.text.splitlines()
    installed = [step.removeprefix("RUN pip install --no-deps ") for step in steps if step.startswith("RUN ")]
    source, target = copy.removeprefix("COPY ").split()
    folder = path.removeprefix("ENV PYTHONPATH=")
    built = {tag for other in all_blocks("sh") for tag in re.findall(r"-t (\S+)", other.commands)}

    assert base.removeprefix("FROM ") in built
    assert target == f"{folder}/{source}"
    assert f"{source}.models:" in (ROOT / block.page).read_text()
    assert all(f"\n{package} \\\n" in (ROOT / "constraints.txt").read_text() for package in installed)
    (user,) = re.findall(r"^USER \d.*$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert steps in ([], ["USER root", *(f"RUN pip install --no-deps {package}" for package in installed), user])


def test_images_are_built_with_extras_that_exist() -> None:
    known = re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named = {
        extra
        for page in {block.page for block in all_blocks("sh", "yaml", "dockerfile")}
        for extras in re.findall(r"EXTRAS=([a-z0-9-]+(?:,[a-z0-9-]+)*)", (ROOT / page).read_text())
        for extra in extras.split(",")
    }

    assert {"operator", "serving"} <= named <= set(known)
