"""The page on the trial, as a reader pastes it: on the nodes of `make cluster`, with a `helm` from PATH."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.installation import KUBECONFIG, RELEASE, chart_here, image_of
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.operator.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "get-started" / "trial.md"
COMMANDS = re.compile(r"^```sh\n(.*?)```", re.S | re.M)
BUILT = "partita.dev/partita:dev"
"""The image that `make cluster` builds with the same extras."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(shutil.which("helm") is None, reason="no helm on PATH"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What the commands read, with the image that is there. The cluster has no DNS: Ray has an address instead."""
    kubectl = Kubectl(KUBECONFIG, "partita-trial")
    trial = (ROOT / "examples/trial/trial.yaml").read_text().replace("partita:trial", BUILT)
    documents = list(yaml.safe_load_all(trial))
    kubectl.apply(*(document for document in documents if document["kind"] in ("Namespace", "Service")))
    service = kubectl.get("service", "ray-head")
    assert service is not None
    values = yaml.safe_load((ROOT / "examples/trial/values.yaml").read_text())
    address = service["spec"]["clusterIP"]
    values["ray"] = {key: url.replace("ray-head.partita-trial", address) for key, url in values["ray"].items()}
    values["image"] = image_of(BUILT)
    written = tmp_path / "examples" / "trial"
    written.mkdir(parents=True)
    (written / "trial.yaml").write_text(trial)
    (written / "values.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "charts").mkdir()
    chart_here(kubectl, tmp_path / "charts")
    paste(f"helm uninstall {RELEASE} --namespace {OPERATOR} || true", tmp_path)  # what `make cluster` has installed
    yield tmp_path
    kubectl.run("delete", "isess", "--all", "--timeout=60s")
    kubectl.run("delete", "namespace", "partita-trial", OPERATOR, "--timeout=300s")


def paste(block: str, folder: Path) -> str:
    """What the commands print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{block}"],
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(KUBECONFIG), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def test_the_page_works_as_pasted(folder: Path) -> None:
    build, install, look, change, remove = COMMANDS.findall(PAGE.read_text())
    assert "docker build" in build  # its image is there

    paste(install, folder)
    looked = paste(look, folder)
    assert "http://" in looked, "the session's URL"
    assert "Attainment" in looked, "the report of the load"
    paste(change, folder)
    paste(remove, folder)
    assert Kubectl(KUBECONFIG, "default").list("crd") == []
