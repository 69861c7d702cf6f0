"""Helm installs the CRDs but does not upgrade them; the command in the chart's notes does."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.operator.chart.charts import CHART
from tests.operator.kubectl import Json, Kubectl

from partita_devtools.control_plane.lifecycle import ControlPlane

GROUP = "earlier.partita.dev"
"""The CRDs have another group here, because other tests use the chart's own."""

pytestmark = pytest.mark.apiserver


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Iterator[Kubectl]:
    made = Kubectl(control_plane.kubeconfig, "default")
    yield made
    # Without waiting: a busy API server takes minutes to look for objects of a definition, and no test has them.
    kinds = ("gpupools", "inferencesessions", "pipelineplans")
    made("delete", "crd", "--wait=false", *(f"{kind}.{GROUP}" for kind in kinds))


def spec_of(definition: Json) -> Json:
    """The schema of the kind's spec."""
    found: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def the_notes_command() -> list[str]:
    """The command that the notes give for an upgrade, without `kubectl`."""
    lines = (CHART / "templates/NOTES.txt").read_text().splitlines()
    (command,) = [line.split() for line in lines if line.strip().endswith("-f crds/")]
    assert command[0] == "kubectl"
    return command[1:-1]


def test_definitions_are_upgraded_by_the_command_of_the_notes(kubectl: Kubectl, tmp_path: Path) -> None:
    crds = Path(shutil.copytree(CHART / "crds", tmp_path / "crds"))
    for path in crds.iterdir():
        definition = yaml.safe_load(path.read_text().replace("partita.dev", GROUP))
        path.write_text(yaml.safe_dump(definition))
        spec = spec_of(definition)
        spec.pop("x-kubernetes-validations", None)  # They read the property.
        del spec["properties"][sorted(spec["properties"].keys() - set(spec.get("required", ())))[0]]
        # As Helm 4 does: it owns the fields that it has applied.
        helm = ("apply", "--server-side", "--field-manager=helm", "-f", "-")
        kubectl(*helm, stdin=yaml.safe_dump(definition))

    kubectl(*the_notes_command(), str(crds))

    for path in crds.iterdir():
        want = yaml.safe_load(path.read_text())
        found = kubectl.get("crd", want["metadata"]["name"])
        assert found is not None
        assert spec_of(found)["properties"].keys() == spec_of(want)["properties"].keys()
