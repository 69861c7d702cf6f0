"""A model's file is replaced in place while its session serves: the session moves to the new content by itself."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.e2e.conftest import IMAGE, TOLERANCE, System, ask, detection, until_ready
from tests.e2e.workload import detector
from tests.operator.kubectl import Json, Kubectl, eventually, reason
from tests.patience import PATIENCE_SECONDS
from tritonclient.utils import InferenceServerException

from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH
from partita_runtime.serving.deploy.applications import frontend_name

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]


def written(path: Path, factor: float) -> np.ndarray:
    """The answer to IMAGE of the model that the file then has."""
    model = detector()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
        answer: np.ndarray = model(torch.from_numpy(IMAGE[None])).numpy()
    torch.jit.script(model).save(path)
    return answer


def of_file(path: Path, **spec: Any) -> Json:
    module = {"name": "detector", "model": {"file": str(path)}, "input": {"shape": [3, 32, 32]}}
    made = detection("filed", modules=[module], edges=[], pools=["e2e-fast"], **spec)
    del made["spec"]["poolSelector"]
    return made


def kill_replicas(system: System, kubectl: Kubectl) -> None:
    """Kill the processes of all stages, as a lost pod does."""
    applications = system.ray.get(APPLICATIONS_PATH)["applications"]
    stages = system.applications(kubectl.namespace) - {frontend_name(f"{kubectl.namespace}/filed")}
    for name in stages:
        for deployment in applications[name]["deployments"].values():
            for replica in deployment["replicas"]:
                os.kill(replica["pid"], signal.SIGKILL)


async def test_replicas_that_find_other_content_lead_to_a_plan_for_it(
    system: System, empty_namespace: Kubectl, tmp_path: Path
) -> None:
    path = tmp_path / "detector.pt"
    first = written(path, 1.0)
    empty_namespace.apply(of_file(path))
    before = await until_ready(empty_namespace, "filed")
    np.testing.assert_allclose(ask(system, empty_namespace, "filed")["detector"], first, atol=TOLERANCE)

    second = written(path, 1.5)
    kill_replicas(system, empty_namespace)

    def answers_as_now() -> bool:
        try:
            answer = ask(system, empty_namespace, "filed")["detector"]
        except InferenceServerException:
            return False  # there is no replica
        return np.allclose(answer, second, atol=TOLERANCE)

    assert not np.allclose(first, second, atol=TOLERANCE)
    await eventually(answers_as_now, bool, PATIENCE_SECONDS)
    found = await eventually(lambda: empty_namespace.get("isess", "filed"), lambda now: reason(now)[0] == "True")
    assert found is not None
    assert found["status"]["currentPlan"] != before["status"]["currentPlan"]
    assert "ContentChanged" in {event["reason"] for event in empty_namespace.list("events")}
