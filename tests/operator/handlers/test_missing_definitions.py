"""An operator on a real API server without Partita's kinds."""

from pathlib import Path

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, eventually, pool, reason, session

from partita_api.crd_schema import KINDS, crd
from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.lifecycle import control_plane

pytestmark = pytest.mark.apiserver


async def test_an_operator_waits_for_the_definitions(
    kubernetes_binaries: Binaries, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a separate control plane: a deletion of definitions also deletes the objects of other tests."""
    definitions = [crd(kind) for kind in KINDS]
    with control_plane(tmp_path / "state", binaries=kubernetes_binaries) as plane:
        kubectl = Kubectl(plane.kubeconfig, "default")
        async with Operators(plane.kubeconfig).running():
            await eventually(
                lambda: caplog.text, lambda log: "the cluster has no GPUPool (partita.dev/v1alpha1)" in log
            )
            kubectl.apply(definitions[0])
            await eventually(lambda: caplog.text, lambda log: "the cluster has no InferenceSession" in log)
            kubectl.apply(*definitions)
            kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
            kubectl.apply(pool("fast"), session("traffic"))

            await eventually(lambda: kubectl.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))

    assert caplog.text.count("waiting for the CustomResourceDefinitions") <= len(KINDS), "each is logged once"
