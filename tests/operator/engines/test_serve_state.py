"""Writes to Serve: own applications are replaced, others are written back unchanged."""

from typing import Any

import pytest

from partita_operator.engines.deployments import Deployments
from partita_operator.engines.serve_state import (
    UnreadableConfigError,
    config_to_put,
    read_state,
)

KEY = "default/traffic"
OURS = "partita.default.traffic.plan-1.m.p.0"
OTHER_SESSION = "partita.default.video.plan-7.m.p.0"
FOREIGN_CONFIG = {
    "name": "chat",
    "import_path": "chat:app",
    "runtime_env": {"env_vars": {"KEY": "secret"}},
    "deployments": [{"name": "LLM", "autoscaling_config": {"min_replicas": 2}}],
}


def app(name: str, status: str = "RUNNING", source: str = "declarative", **fields: Any) -> dict[str, Any]:
    config = {"name": name, "import_path": "x:y", "deployments": []}
    return {
        "name": name,
        "status": status,
        "message": "",
        "last_deployed_time_s": 1.0,
        "source": source,
        "deployed_app_config": config,
        "deployments": {},
    } | fields


def details(*apps: dict[str, Any]) -> dict[str, Any]:
    """An answer of GET /api/serve/applications/."""
    return {
        "controller_info": {"actor_name": "SERVE_CONTROLLER_ACTOR"},
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8123},
        "grpc_options": {"port": 9000},
        "target_capacity": 50.0,
        "applications": {a["name"]: a for a in apps},
    }


def test_other_applications_and_the_options_of_serve_stay_as_they_are() -> None:
    foreign = app("chat", deployed_app_config=FOREIGN_CONFIG)
    state = read_state(details(app(OURS), app(OTHER_SESSION), foreign))
    new = {"name": OURS, "import_path": "new:new", "deployments": []}
    assert config_to_put(state, KEY, Deployments([new]), 8000) == {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8123},
        "grpc_options": {"port": 9000},
        "target_capacity": 50.0,
        "applications": [app(OTHER_SESSION)["deployed_app_config"], FOREIGN_CONFIG, new],
    }


def test_applications_that_are_not_declarative_or_are_being_deleted_are_not_written() -> None:
    state = read_state(
        details(
            app("by serve.run", source="imperative", deployed_app_config=None),
            app("leaving", status="DELETING", deployed_app_config=None),
            app(OURS, status="DELETING", deployed_app_config=None),
        )
    )
    assert config_to_put(state, KEY, Deployments(), 8000)["applications"] == []
    assert state.deployments(KEY) == {}


def test_a_serve_that_does_not_run_yet_is_started_on_the_operators_port() -> None:
    empty: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
    state = read_state(empty)
    assert not state.running
    assert config_to_put(state, KEY, Deployments(), 8234) == {
        "http_options": {"host": "0.0.0.0", "port": 8234},
        "applications": [],
    }


@pytest.mark.parametrize(
    ("config", "want_words"),
    [
        pytest.param(None, ["'chat'", "nothing was changed"], id="not reported"),
        pytest.param(
            {"name": "chat", "runtime_env": {"env_vars": {"KEY": "<redacted>"}}},
            ["'chat'", "RAY_DASHBOARD_REDACT_RUNTIME_ENV"],
            id="redacted",
        ),
    ],
)
def test_an_incomplete_configuration_is_never_overwritten(config: dict[str, Any] | None, want_words: list[str]) -> None:
    state = read_state(details(app("chat", deployed_app_config=config)))
    with pytest.raises(UnreadableConfigError) as raised:
        config_to_put(state, KEY, Deployments(), 8000)
    assert [word for word in want_words if word not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("config", "blocks"),
    [
        pytest.param({"args": {"kwargs": {"secret": "<redacted>"}}}, False, id="arguments of the session's model"),
        pytest.param({"deployments": [{"user_config": {"plan": "<redacted>"}}]}, False, id="its plan"),
        pytest.param({"runtime_env": {"env_vars": {"PATH": "<redacted>"}}}, True, id="variables of the operator"),
        pytest.param(
            {"deployments": [{"ray_actor_options": {"runtime_env": {"env_vars": {"PATH": "<redacted>"}}}}]},
            True,
            id="variables of a deployment",
        ),
    ],
)
def test_what_a_session_writes_does_not_block_other_sessions(config: dict[str, Any], blocks: bool) -> None:
    other = {"name": OTHER_SESSION, "import_path": "x:y", "deployments": [], **config}
    state = read_state(details(app(OTHER_SESSION, deployed_app_config=other)))
    if blocks:
        with pytest.raises(UnreadableConfigError):
            config_to_put(state, KEY, Deployments(), 8000)
    else:
        assert config_to_put(state, KEY, Deployments(), 8000)["applications"] == [other]


def test_a_session_sees_only_its_own_applications() -> None:
    state = read_state(details(app(OURS), app(OTHER_SESSION), app("chat")))
    assert set(state.of_session(KEY)) == {OURS}
    assert set(state.deployments(KEY)) == {OURS}


def test_replicas_and_resources_are_read() -> None:
    deployment = {
        "message": "",
        "target_num_replicas": 3,
        "required_resources": {"CPU": 0.1, "GPU": 0.0, "partita-pool-a": 0.5},
        "replicas": [
            {"replica_id": "r1", "state": "RUNNING", "node_id": "n1", "start_time_s": 10.0},
            {"replica_id": "r2", "state": "STARTING", "start_time_s": 20.0},
        ],
    }
    state = read_state(details(app(OURS, deployments={"stage": deployment})))
    (running,) = state.applications[OURS].deployments
    assert running.resources == {"CPU": 0.1, "partita-pool-a": 0.5}
    assert [(r.id, r.placed, r.started) for r in running.replicas] == [("r1", True, 10.0), ("r2", False, 20.0)]
    assert (running.ready, running.target) == (1, 3)
    assert state.applications[OURS].ready == 1
