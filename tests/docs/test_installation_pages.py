"""Pages on the chart: its installation, settings, upgrade and removal on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.docs.helm import merge
from tests.docs.pages import blocks, pasted
from tests.docs.shell import Shell, helm_program
from tests.operator.kubectl import Kubectl, eventually, install_definitions
from tests.operator.kubelet_double import KubeletDouble

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.ports import free_ports
from partita_operator.cli.exit_codes import ExitCode

pytest.importorskip("helm_python", reason="Helm's SDK is missing: pip install helm-python-sdk")
pytestmark = pytest.mark.apiserver

INSTALL, SETTINGS, README = "docs/get-started/install.md", "docs/reference/settings.md", "README.md"
UPGRADE, MONITORING = "docs/tasks/upgrade.md", "docs/tasks/monitoring.md"
UNINSTALL, ENGINES = "docs/get-started/uninstall.md", "docs/concepts/engines.md"
OPERATOR: Final = "partita-system"


@pytest.fixture
def reader(control_plane: ControlPlane, cluster: Kubectl, tmp_path: Path) -> Iterator[Shell]:
    """A shell beside the chart, without Partita's CRDs in the cluster, and with a node for the operator."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    node = f"node-{uuid4().hex[:8]}"
    metrics, health = free_ports(2)
    values = yaml.safe_load(next(block.text for block in blocks(INSTALL) if block.language == "yaml"))
    here: dict[str, Any] = {
        "replicas": 1,  # all pods of the node share this machine's ports
        "nodeSelector": {"kubernetes.io/hostname": node},
        "metrics": {"port": metrics},
        "health": {"port": health},
    }
    merge(values, here)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    with KubeletDouble(control_plane, node, work_dir=tmp_path / "node"):
        yield Shell(tmp_path, control_plane.kubeconfig, programs=[helm_program(tmp_path / "bin")])
        install_definitions(cluster)


async def test_partita_is_installed_set_upgraded_and_removed(reader: Shell, cluster: Kubectl) -> None:
    cluster("delete", "crd", "--all")
    install, add_namespace, check, *_ = pasted(INSTALL)
    _look, install_of_the_readme = pasted(README)
    change, refused = pasted(SETTINGS)
    look, save, upgrade, set_one, back = pasted(UPGRADE)
    _at_once, logs = pasted(MONITORING)
    (make_password,) = pasted(ENGINES)
    assert install_of_the_readme.strip() in install

    reader.paste(install)
    reader.paste(add_namespace)
    for namespace in ("default", "team-a"):
        assert Kubectl(cluster.kubeconfig, namespace).get("role", "partita") is not None
    crds, pods, doctor = check.splitlines()
    assert "Running" in reader.paste(f"{crds}\n{pods}")
    assert "operator" in reader.run(doctor).stdout
    await eventually(lambda: reader.paste(logs), lambda shown: "leader" in shown)
    assert "redis-password created" in reader.paste(make_password)
    cluster("delete", "secret", "redis-password", "-n", OPERATOR)
    assert "attempts: 5" in reader.paste(change)
    wrong = reader.run(refused)
    assert wrong.returncode == ExitCode.BAD_INPUT
    assert wrong.stderr.split() == blocks(SETTINGS)[1].output.split()

    objects, doctor_again = look.splitlines()
    assert doctor_again == doctor
    reader.paste(objects)
    reader.paste(save)
    for commands in (upgrade, set_one, back):
        reader.paste(commands)
    for commands in pasted(UNINSTALL):
        reader.paste(commands)
    cluster("delete", "namespace", "team-a", "--wait=false")
    assert cluster.list("crd") == []
    assert Kubectl(cluster.kubeconfig, OPERATOR).get("deployment", "partita") is None


def test_the_short_form_of_the_upgrade_is_the_same() -> None:
    *_, upgrade = (block.splitlines() for block in pasted(INSTALL))
    long = {line for block in pasted(UPGRADE) for line in block.splitlines()}

    assert {*upgrade} <= long
