"""The page on the trial, as a reader pastes it, on the nodes of `make cluster`."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from tests.cluster.installation import KUBECONFIG, RELEASE, image_of
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.docs.pages import pasted_with_nodes
from tests.docs.shell import Shell, helm_program
from tests.operator.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/get-started/trial.md"
BUILT = "partita.dev/partita:dev"
"""The image that `make cluster` builds with the same extras."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(find_spec("helm_python") is None, reason="Helm's SDK is missing: pip install helm-python-sdk"),
]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Shell]:
    """A folder with what the commands read, for the image that is there."""
    trial = (ROOT / "examples/trial/trial.yaml").read_text().replace("partita:trial", BUILT)
    values = yaml.safe_load((ROOT / "examples/trial/values.yaml").read_text())
    values["image"] = image_of(BUILT)
    written = tmp_path / "examples" / "trial"
    written.mkdir(parents=True)
    (written / "trial.yaml").write_text(trial)
    (written / "values.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    shell = Shell(tmp_path, KUBECONFIG, programs=[helm_program(tmp_path / "bin")])
    shell.paste(f"helm uninstall {RELEASE} --namespace {OPERATOR} || true")  # what `make cluster` has installed
    yield shell
    kubectl = Kubectl(KUBECONFIG, "partita-trial")
    kubectl.run("delete", "isess", "--all", "--timeout=60s")
    kubectl.run("delete", "namespace", "partita-trial", OPERATOR, "--timeout=300s")


def test_the_page_works_as_pasted(reader: Shell) -> None:
    install, look, load, change, remove = pasted_with_nodes(PAGE)

    reader.paste(install)
    assert "http://" in reader.paste(look), "the session's URL"
    assert "Attainment" in reader.paste(load), "the report of the load"
    reader.paste(change)
    reader.paste(remove)
    assert Kubectl(KUBECONFIG, "default").list("crd") == []
