"""Sessions that cannot be served: what their owner is told, and that it concerns nobody else."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.e2e import workload
from tests.e2e.conftest import IMAGE, TOLERANCE, System, ask, detection, emulated, until_ready
from tests.operator.kubectl import Json, Kubectl, condition, eventually
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]


def with_model(entrypoint: str) -> Json:
    model = {"name": "detector", "model": {"entrypoint": entrypoint}, "input": {"shape": [3, 32, 32]}}
    return detection(modules=[model], edges=[], pools=["e2e-fast"])


@pytest.mark.parametrize(
    ("manifest", "want_type", "want_reason", "want_message"),
    [
        pytest.param(
            with_model("tests.e2e.missing:detector"),
            "Profiled",
            "ProfilingFailed",
            "cannot import",
            id="no such module",
        ),
        pytest.param(
            with_model("tests.e2e.workload:not_a_number"), "Profiled", "ProfilingFailed", "NaN", id="answers NaN"
        ),
        pytest.param(
            emulated(slo={"latencyMs": 20}), "Planned", "SLOTooTight", "latencyMs", id="SLO below what is possible"
        ),
        pytest.param(
            emulated(rate={"requestsPerSecond": 1000000}),
            "Planned",
            "InsufficientCapacity",
            "lower the rate",
            id="huge rate",
        ),
    ],
)
async def test_what_the_owner_is_told(
    system: System, namespace: Kubectl, manifest: Json, want_type: str, want_reason: str, want_message: str
) -> None:
    namespace.apply(manifest)

    found: dict[str, Any] = await eventually(
        lambda: condition(namespace.get("isess", manifest["metadata"]["name"]), want_type),
        lambda now: now.get("reason") == want_reason,
        120,
    )

    assert want_message in found["message"]
    assert not system.applications(namespace.namespace)


async def test_a_model_that_cannot_be_exported_is_served_whole_and_the_owner_is_told_why(
    system: System, empty_namespace: Kubectl
) -> None:
    empty_namespace.apply(with_model("tests.e2e.workload:branching"))
    found = await until_ready(empty_namespace, "detection")

    answer = ask(system, empty_namespace, "detection")

    assert "detector: the model is served as one block" in condition(found, "Profiled")["message"]
    whole = workload.branching()
    with torch.no_grad():
        want = whole(torch.from_numpy(IMAGE[None])).numpy()
    np.testing.assert_allclose(answer["detector"], want, atol=TOLERANCE * np.abs(want).max())
    (plan,) = empty_namespace.list("pplan")
    (pipeline,) = plan["spec"]["modules"][0]["pipelines"]
    assert [stage["blocks"] for stage in pipeline["stages"]] == [{"first": 0, "end": 1}]


async def test_sessions_of_one_name_in_two_namespaces_are_two(
    system: System, namespace: Kubectl, profiles: dict[str, Json]
) -> None:
    other = f"{namespace.namespace}-other"
    system.kubectl("create", "namespace", other)
    elsewhere = Kubectl(namespace.kubeconfig, other)
    elsewhere.apply(*profiles.values())
    for kubectl in (namespace, elsewhere):
        kubectl.apply(emulated())
        await until_ready(kubectl, "emulated")

    await elsewhere.wait("delete", "isess", "emulated", f"--timeout={PATIENCE_SECONDS}s")
    elsewhere("delete", "namespace", other, "--wait=false")

    assert not system.applications(other)
    (plan,) = namespace.list("pplan")
    assert system.signals(namespace.namespace, "emulated")["plan"] == plan["metadata"]["name"]
