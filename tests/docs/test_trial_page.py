"""The page on the trial without nodes: what its commands do on the API server, where no pod runs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT
from tests.docs.pages import pasted
from tests.docs.shell import Shell, helm_program
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, install_definitions

pytest.importorskip("helm_python", reason="Helm's SDK is missing: pip install helm-python-sdk")
pytestmark = pytest.mark.apiserver

PAGE, NAMESPACE, OPERATOR = "docs/get-started/trial.md", "partita-trial", "partita-system"


@pytest.fixture
def reader(cluster: Kubectl, tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder with the chart and the examples. The CRDs are there afterwards, too."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield Shell(tmp_path, cluster.kubeconfig, programs=[helm_program(tmp_path / "bin")])
    install_definitions(cluster)


async def test_the_trial_is_planned_changed_and_removed(reader: Shell, cluster: Kubectl, operators: Operators) -> None:
    """The operator of the chart finds no node here. One in this process does its work."""
    install, look, change, remove = pasted(PAGE)
    trial = Kubectl(cluster.kubeconfig, NAMESPACE)
    *delete_objects, delete_definitions = remove.splitlines()

    async with operators.running():
        await asyncio.to_thread(reader.paste, install)
        operator = Kubectl(cluster.kubeconfig, OPERATOR).get("deployment", "partita")
        assert operator is not None
        (container,) = operator["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "partita:trial"
        assert "http://" in await asyncio.to_thread(reader.paste, look), "the session's URL"
        await asyncio.to_thread(reader.paste, change)
        assert (trial.get("isess", "trial") or {})["spec"]["rate"]["requestsPerSecond"] == 60
        shown = await asyncio.to_thread(reader.paste, "partita explain isess/trial -n partita-trial")
        assert "Current plan: trial-" in shown
        await asyncio.to_thread(reader.paste, "\n".join(delete_objects))
    reader.paste(delete_definitions)
    assert trial.get("namespace", NAMESPACE) is None
    assert cluster.list("crd") == []
