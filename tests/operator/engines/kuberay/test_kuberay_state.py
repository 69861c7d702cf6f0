"""Conclusions from a RayService, its Ray cluster and Serve; the selection of engines."""

import json
from math import inf
from typing import Any

import httpx
import pytest
from tests.builders import pool, session
from tests.operator.engines.serve_model import application, stage_config

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import EngineType
from partita_operator.engines.app_config import AppConfig
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.state import (
    clusters,
    configured_state,
    explanation,
    is_ready,
    reachable_capacity,
    serve_service,
    serving_cluster,
)
from partita_operator.engines.ray.clusters import RayClusters
from partita_operator.engines.selection import EngineRegistry, MissingEngine
from partita_operator.engines.serve_state import ServeReplica, ServeState
from partita_operator.ports import EngineUnavailableError, ServingStatus
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.ray import RayClusterSettings, RaySettings

Json = dict[str, Any]
GHOST = pool("a").with_spec(ray_resource="a").build()
SETTINGS = KubeRaySettings(image="registry/serving:1")
UP = ServeReplica("RUNNING", node="n1", started=0.0)
LOST = ServeReplica("STARTING", node=None, started=0.0)


def conditions(ready: str, reason: str = "Initializing", upgrade: str = "False") -> Json:
    return {
        "conditions": [
            {"type": "Ready", "status": ready, "reason": reason, "message": "as KubeRay says"},
            {"type": "UpgradeInProgress", "status": upgrade, "reason": "x", "message": ""},
        ]
    }


def service(*apps: AppConfig, status: Json | None = None) -> Json:
    return {**rayservice("vision", apps, [], None, SETTINGS), "status": status or {}}


def ghosts(capacity: int, free: int) -> GPUPool:
    return GHOST.model_copy(update={"status": GPUPoolStatus(capacity=capacity, free=Quantity(free))})


@pytest.mark.parametrize(
    ("status", "want_words", "want_ready"),
    [
        pytest.param({}, "check whether KubeRay's operator runs", False, id="no KubeRay"),
        pytest.param(conditions("False"), "starts the Ray cluster", False, id="starting"),
        pytest.param(
            conditions("False", "ValidationFailed"),
            "ValidationFailed: as KubeRay says). Correct kuberay",
            False,
            id="refused",
        ),
        pytest.param(conditions("True", "NonZeroServeEndpoints"), "", True, id="serving"),
        pytest.param(conditions("True", upgrade="True"), "old one serves until", True, id="being replaced"),
        pytest.param({"serviceStatus": "Running"}, "has not processed", False, id="empty serviceStatus"),
    ],
)
def test_conditions_give_the_state_of_a_rayservice(status: Json, want_words: str, want_ready: bool) -> None:
    found = service(status=status)

    assert want_words in explanation(found)
    assert bool(explanation(found)) == bool(want_words)
    assert is_ready(found) == want_ready


def test_the_serving_cluster_comes_first_and_heads_are_found_by_convention_by_default() -> None:
    status = {
        "pendingServiceStatus": {"rayClusterName": "partita-new"},
        "activeServiceStatus": {
            "rayClusterName": "partita-old",
            "rayClusterStatus": {"head": {"serviceName": "told-head"}},
        },
    }

    assert list(clusters(service(status=status)).items()) == [
        ("partita-old", "told-head"),
        ("partita-new", "partita-new-head-svc"),
    ]
    assert clusters(service()) == {}


@pytest.mark.parametrize(
    ("active", "pending", "want"),
    [
        pytest.param({"trafficRoutedPercent": 100}, {"trafficRoutedPercent": 0}, "old", id="it starts"),
        pytest.param({"trafficRoutedPercent": 50}, {"trafficRoutedPercent": 50}, "old", id="half of it"),
        pytest.param({"trafficRoutedPercent": 40}, {"trafficRoutedPercent": 60}, "new", id="more than half"),
        pytest.param({}, {}, "old", id="another strategy"),
    ],
)
def test_clients_move_with_most_of_the_gateways_traffic(active: Json, pending: Json, want: str) -> None:
    status = {
        "activeServiceStatus": {"rayClusterName": "old", **active},
        "pendingServiceStatus": {"rayClusterName": "new", **pending},
    }
    found = service(status=status)

    assert serving_cluster(found) == want
    assert next(iter(clusters(found))) == want
    assert serve_service(found) == "partita-serve-svc"
    found["spec"]["upgradeStrategy"] = {"type": "NewClusterWithIncrementalUpgrade"}
    assert serve_service(found) == f"{want}-serve-svc"


def test_the_written_configuration_counts_before_serve_shows_it() -> None:
    new, old = stage_config("plan-2", 0, 2), stage_config("plan-1", 0, 1)
    running = application(old, [UP])

    state = configured_state(service(new), ServeState(running=True, applications={running.name: running}))

    assert state.deployments("default/traffic") == {new["name"]: new}
    assert state.applications[old["name"]].status == "DELETING"
    assert state.applications[new["name"]].ready == 0
    assert configured_state(None, None) == ServeState(running=False)


def test_a_change_of_the_configuration_is_used_at_once_with_the_running_replicas() -> None:
    running = application(stage_config("plan-1", 0, 1), [UP])
    configured = stage_config("plan-1", 0, 3)

    state = configured_state(service(configured), ServeState(running=True, applications={running.name: running}))

    app = state.applications[configured["name"]]
    assert (app.config, app.ready) == (configured, 1)


@pytest.mark.parametrize(
    ("capacity", "free", "replicas", "want"),
    [
        pytest.param(4, 2, [UP, UP], 4, id="what runs and what is free"),
        pytest.param(4, 2, [UP, UP, UP, UP], 4, id="never more than there are"),
        pytest.param(4, 0, [UP, LOST], 1, id="a replica without a node frees nothing"),
        pytest.param(4, 4, [], 4, id="nothing runs yet"),
    ],
)
def test_free_accelerators_are_those_of_the_pool_and_of_running_pods(
    capacity: int, free: int, replicas: list[ServeReplica], want: int
) -> None:
    running = application(stage_config("plan-1", 0, len(replicas)), replicas)
    state = ServeState(running=True, applications={running.name: running} if replicas else {})

    found = reachable_capacity(state, [ghosts(capacity, free)])

    assert (found["a"], found["CPU"], found["GPU"]) == (want, inf, inf)


async def test_an_engine_without_settings_names_them_and_blocks_nothing_else() -> None:
    engines = EngineRegistry(RayClusters(OperatorSettings(ray=RaySettings(address=""))), None)
    for type, words in (("KubeRay", "kuberay.image"), ("Ray", "ray.address")):
        engine = engines.of(session("traffic").model("a").with_spec(engine={"type": type}).build())

        assert isinstance(engine, MissingEngine)
        status = await engine.observe("default/traffic")
        assert words in status.message
        assert status == ServingStatus(message=status.message)
        assert await engine.sessions() == frozenset()
        assert await engine.remove("default/traffic")
        with pytest.raises(EngineUnavailableError, match=words):
            await engine.apply(None)  # type: ignore[arg-type]
    assert len(engines.known()) == 1


def test_sessions_go_to_the_engine_that_they_name() -> None:
    ray = RayClusters(OperatorSettings())
    engines = EngineRegistry(ray, None)

    def engine(**fields: str) -> object:
        return engines.of(session("traffic").model("a").with_spec(engine=fields).build())

    assert engine() is engine(type="Ray") is ray.all()[0]
    assert engine(type="KubeRay") is not engine()
    assert engines.known() == ray.all()


@pytest.mark.parametrize(
    ("default", "engine", "want"),
    [
        pytest.param("Ray", {}, "Ray", id="default Ray"),
        pytest.param("KubeRay", {}, "KubeRay", id="default KubeRay"),
        pytest.param("KubeRay", {"type": "Ray"}, "Ray", id="the session names Ray"),
        pytest.param("Ray", {"type": "KubeRay"}, "KubeRay", id="the session names KubeRay"),
        pytest.param("KubeRay", {"cluster": "ours"}, "Ray", id="only a cluster"),
    ],
)
def test_the_settings_say_which_engine_sessions_have_by_default(default: str, engine: Json, want: str) -> None:
    ours = RayClusterSettings(name="ours", address="http://ours:8265", namespaces=("*",))
    settings = OperatorSettings(
        default_engine=EngineType(default), kuberay=KubeRaySettings(image="x"), ray=RaySettings(clusters=(ours,))
    )
    ray = RayClusters(settings)
    built = session("traffic").model("a").with_spec(engine=engine).build()
    found = EngineRegistry(ray, None, settings.default_engine).of(built)

    assert isinstance(found, MissingEngine) == (want == "KubeRay")
    assert built.spec.engine.type_or(settings.default_engine) == want


def test_kuberay_is_no_default_without_its_image() -> None:
    with pytest.raises(ValueError, match=r"kuberay\.image"):
        OperatorSettings(default_engine=EngineType.KUBERAY)


@pytest.mark.parametrize(
    ("settings", "want_words"),
    [
        pytest.param({"image": "x", "imagge": "y"}, "imagge", id="unknown setting"),
        pytest.param({"image": "x", "serveUrl": "http://{pod}"}, "service", id="unknown name in a URL"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: Json, want_words: str) -> None:
    with pytest.raises(ValueError, match=want_words):
        KubeRaySettings.model_validate_json(json.dumps(settings))


def test_addresses_are_those_of_services_in_the_namespace() -> None:
    names = {"service": "partita-serve-svc", "namespace": "vision"}

    assert httpx.URL(SETTINGS.serve_url.format(**names)).host == "partita-serve-svc.vision.svc"
    assert httpx.URL(SETTINGS.dashboard_url.format(**names)).port == 8265
