"""The operator on a real API server that has no events of the time of an interruption."""

import logging
from pathlib import Path

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.handlers.faults.api_gap import ApiRoad, forget_history
from tests.operator.handlers.in_memory import OneStageSolver
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.handlers import operator

pytestmark = pytest.mark.apiserver


async def test_changes_in_a_gap_of_the_watches_are_found_by_the_new_watches(
    namespace: Kubectl,
    operators: Operators,
    control_plane: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(operator, "SWEEP_SECONDS", 3600.0)  # only the watches list objects
    caplog.set_level(logging.DEBUG, "kopf")
    operators.solver = OneStageSolver()
    namespace.apply(pool("fast", count=8), session("going"), session("changing"))
    road = ApiRoad(control_plane)
    async with road.kubeconfig(tmp_path) as operators.kubeconfig, operators.running():
        await namespace.wait("wait", "isess", "--all", "--for=condition=Ready", "--timeout=60s")
        await road.cut()
        namespace("delete", "isess", "going", "--wait=false")
        namespace.apply(session("changing", slo={"latencyMs": 150}), session("new"))
        forget_history(control_plane)
        assert "Restarting the watch-stream" not in caplog.text
        road.mend()

        await eventually(lambda: namespace.get("isess", "going"), lambda s: s is None, seconds=120)
        await namespace.wait("wait", "isess/new", "--for=condition=Ready", "--timeout=120s")
        await eventually(
            lambda: namespace.get("isess", "changing"),
            lambda s: condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
            seconds=120,
        )
        assert set(operators.engine.applied) == {f"{namespace.namespace}/{name}" for name in ("changing", "new")}
        # kopf's log line for 410 Gone.
        assert "Restarting the watch-stream for inferencesessions.v1alpha1.partita.dev" in caplog.text

        namespace.apply(session("later"))
        await namespace.wait("wait", "isess/later", "--for=condition=Ready", "--timeout=120s")
