"""The API server and operators for the pages whose commands need a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.shell import Shell
from tests.operator.handlers.conftest import cluster, namespace, operators
from tests.operator.kubectl import Kubectl

__all__ = ["cluster", "namespace", "operators"]


@pytest.fixture
def reader(namespace: Kubectl, tmp_path: Path) -> Iterator[Shell]:
    """A shell whose kubectl is in the test's namespace. Pools that the pages name are removed."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(namespace.kubeconfig.read_text())
    folder = tmp_path / "reader"
    folder.mkdir()
    shell = Shell(folder, kubeconfig)
    shell.paste(f"kubectl config set-context --current --namespace={namespace.namespace}")
    yield shell
    for pool in namespace.list("gpupool"):
        name = pool["metadata"]["name"]
        namespace.run("patch", "gpool", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        namespace("delete", "gpool", name, "--ignore-not-found", "--wait=false")
