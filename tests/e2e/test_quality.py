"""Another model gives worse answers: its plan takes no requests until the limit of the quality check allows them."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.conftest import IMAGE, TOLERANCE, System, ask, until_ready
from tests.e2e.test_changed_content import of_file, written
from tests.operator.kubectl import Json, Kubectl, condition, eventually, reason

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]


def samples(answer: np.ndarray) -> Json:
    """A ConfigMap with IMAGE and the answer that is expected."""
    given = {"name": "input", "datatype": "FP32", "shape": [1, *IMAGE.shape], "data": IMAGE.ravel().tolist()}
    expected = {"name": "detector", "datatype": "FP32", "shape": [*answer.shape], "data": answer.ravel().tolist()}
    lines = json.dumps({"inputs": [given], "outputs": [expected]})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "known"}, "data": {"samples.jsonl": lines}}


def quality(limit: str) -> Json:
    return {"samples": {"configMap": "known"}, "metric": "MaxAbsoluteError", "limit": limit}


async def test_a_plan_with_worse_answers_does_not_serve_until_the_limit_allows_them(
    system: System, empty_namespace: Kubectl, tmp_path: Path
) -> None:
    good, worse = tmp_path / "good.pt", tmp_path / "worse.pt"
    first, second = written(good, 1.0), written(worse, 1.5)
    empty_namespace.apply(samples(first), of_file(good, quality=quality("0.02")))
    before = await until_ready(empty_namespace, "filed")
    assert reason(before, "QualityMet") == ("True", "QualityMet")

    empty_namespace.apply(of_file(worse, quality=quality("0.02")))
    missed = await eventually(
        lambda: empty_namespace.get("isess", "filed"),
        lambda now: reason(now, "QualityMet") == ("False", "QualityMissed"),
    )
    assert missed is not None
    assert missed["status"]["currentPlan"] == before["status"]["currentPlan"]
    assert "0.02" in condition(missed, "QualityMet")["message"]
    np.testing.assert_allclose(ask(system, empty_namespace, "filed")["detector"], first, atol=TOLERANCE)
    await eventually(
        lambda: system.applications(empty_namespace.namespace),
        lambda names: all(before["status"]["currentPlan"]["name"] in name or "frontend" in name for name in names),
    )

    empty_namespace.apply(of_file(worse, quality=quality("1000")))
    await eventually(
        lambda: np.allclose(ask(system, empty_namespace, "filed")["detector"], second, atol=TOLERANCE), bool
    )
    passed = await until_ready(empty_namespace, "filed")
    assert passed["status"]["currentPlan"] != before["status"]["currentPlan"]
