"""Messages about an application that does not run: the cause, and what to do."""

from dataclasses import replace

import pytest
from tests.operator.engines.serve_model import application, stage_config

from partita_operator.engines.failure_diagnosis import diagnosis
from partita_operator.engines.serve_state import ServeApplication, ServeReplica, ServeState
from partita_runtime.serving.deploy.relocation import Relocation

NOW = 1000.0
UP = ServeReplica("RUNNING", node="n1", started=0.0)
LOST = ServeReplica("STARTING", node=None, started=NOW - 60)
NEW = ServeReplica("STARTING", node=None, started=NOW - 1)
LOADING = ServeReplica("STARTING", node="n1", started=NOW - 60)
STAGE = stage_config("one", 0, 3, "partita-pool-a")
GOING = ServeReplica("STOPPING", node="n1", started=0.0, id="going")
RELOCATION = Relocation(replica="going", others=3, since=0, unevenness=9, among="x")
SPREADING = {
    **STAGE,
    "deployments": [{**STAGE["deployments"][0], "user_config": RELOCATION.model_dump(mode="json", by_alias=True)}],
}
TRACEBACK = "Deploying app failed with exception:\nTraceback ...\nModuleNotFoundError: No module named 'vision'\n"


@pytest.mark.parametrize(
    ("app", "capacity", "want_words"),
    [
        pytest.param(application(STAGE, [UP, UP, UP]), 3, [], id="runs"),
        pytest.param(application(STAGE, [UP, NEW], "DEPLOYING"), 1, [], id="just started"),
        pytest.param(application(STAGE, [UP, LOADING], "DEPLOYING"), 3, [], id="loading its model"),
        pytest.param(
            application(STAGE, [UP, LOST, LOST], "DEPLOYING"),
            1,
            ["2 of 3 replicas of the stage", "1 partita-pool-a", "1 of 1 partita-pool-a are in use", "Add nodes"],
            id="all in use",
        ),
        pytest.param(
            application(STAGE, [LOST], "DEPLOYING"),
            0,
            ["the Ray cluster has no partita-pool-a."],
            id="no such resource",
        ),
        pytest.param(
            application(STAGE, [], "DEPLOY_FAILED", TRACEBACK),
            3,
            ["No module named 'vision'", "ray.runtimeEnv of the chart"],
            id="cannot be imported",
        ),
        pytest.param(
            application(STAGE, [], "UNHEALTHY", "The deployment failed to start 3 times.\nRuntimeError: CUDA"),
            3,
            ["RuntimeError: CUDA", "logs"],
            id="crashes",
        ),
        pytest.param(application(SPREADING, [UP, UP, GOING], "UNHEALTHY", "health check failed"), 3, [], id="moves"),
        pytest.param(
            application(SPREADING, [UP, GOING, LOST], "UNHEALTHY", "health check failed"),
            2,
            ["1 of 3 replicas", "2 of 2 partita-pool-a are in use"],
            id="moves and finds no node",
        ),
        pytest.param(application(STAGE, [], "DELETING"), 3, ["Ray Serve removes the stage."], id="being removed"),
    ],
)
def test_the_diagnosis_names_cause_and_remedy(app: ServeApplication, capacity: int, want_words: list[str]) -> None:
    state = ServeState(running=True, applications={app.name: app})
    words = diagnosis(app, state, {"partita-pool-a": capacity, "CPU": 4}, NOW)
    assert [word for word in want_words if word not in words] == []
    assert bool(words) == bool(want_words)


def test_a_deployments_own_message_is_the_last_resort() -> None:
    app = application(STAGE, [LOADING], "DEPLOYING")
    (deployment,) = app.deployments
    app = replace(app, deployments=(replace(deployment, message="Replicas take long to initialize."),))
    state = ServeState(running=True, applications={app.name: app})
    assert diagnosis(app, state, {"partita-pool-a": 3}, NOW) == "Replicas take long to initialize."
