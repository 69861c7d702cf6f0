"""Serve applications of a session: their names, changes in place, and requested resources."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pool
from tests.runtime.serving.plans import EMULATED, Application, application, detector_with_crops

from partita_api.gpupool import GPUPool, Sharing, SharingMode
from partita_api.inferencesession import Engine, EngineType
from partita_api.pod.template import PodTemplate
from partita_api.session.expose import Expose, IngressExposure
from partita_api.session.frontend import Frontend
from partita_api.session.request_log import RequestLog
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import (
    ApplicationName,
    ServingOptions,
    frontend_application,
    frontend_name,
    holding_both,
    parse_application,
    route_prefix,
    stage_applications,
    stage_name,
)
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.deploy.names import subcluster_name
from partita_runtime.serving.deploy.stage_arguments import StageArguments, SubclusterArguments, SubclusterModels
from partita_runtime.serving.transport.kind import TransportKind

STAGE = StageRef("detector", "p0", 1)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param(
            "partita.default.traffic.frontend", ApplicationName("default/traffic", None, None), id="a frontend"
        ),
        pytest.param(
            "partita.default.traffic.traffic-7.detector.p0.1",
            ApplicationName("default/traffic", "traffic-7", STAGE),
            id="a stage",
        ),
        pytest.param(
            "partita.ns.my_app.my_app-7.m.p0.0",
            ApplicationName("ns/my.app", "my.app-7", StageRef("m", "p0", 0)),
            id="names with dots",
        ),
        pytest.param("default", None, id="of another owner"),
        pytest.param("partita", None, id="only the prefix"),
        pytest.param("partita.default.traffic", None, id="too short"),
        pytest.param("partita.default.traffic.backend", None, id="another last part"),
        pytest.param("partita.default.traffic.plan.m.p0.x", None, id="no stage number"),
        pytest.param("partita.default..frontend", None, id="an empty part"),
        pytest.param("partita.default.traffic.plan.m.p0.0.more", None, id="too long"),
    ],
)
def test_names_are_read_back(name: str, want: ApplicationName | None) -> None:
    assert parse_application(name) == want
    if want is not None and want.plan is not None and want.stage is not None:
        assert stage_name(want.session_key, want.plan, want.stage) == name
    elif want is not None:
        assert frontend_name(want.session_key) == name


@pytest.mark.parametrize("part", ["a_b", "a/b", "", "-a", "a#b", "a b"])
def test_parts_that_cannot_be_read_back_are_refused(part: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of an application's name"):
        stage_name("default/traffic", "plan", StageRef("m", part, 0))


def test_a_subcluster_is_one_application_for_all_plans() -> None:
    app = replace(
        application("both").model("a", outputs=((2, 2),), memory=(5, 7)).model("b", memory=(5, 9)).edge("a", "b"),
        subcluster="all",
        replicas=3,
        batch_size=2,
        pool_memory="4Ki",
    )
    other = app.planned("plan-2", replicas=4)
    old, new = (stage_applications(a.session, a.plan, a.profiles, a.pools, {}) for a in (app, other))
    ((only,), (after,)) = old, new
    assert (only["name"], only["args"]) == (after["name"], after["args"])
    read = parse_application(only["name"])
    assert read == ApplicationName("default/both", None, None, "all")
    assert only["name"] == subcluster_name("default/both", EMULATED, 1, "all")
    told = SubclusterModels.model_validate(only["deployments"][0]["user_config"])
    assert told.memory_bytes == 4096
    assert [(s.module, s.static_bytes, s.dynamic_bytes) for s in told.stages] == [("a", 20, 14), ("b", 20, 18)]
    (both,) = holding_both(only, after)["deployments"]
    assert both["num_replicas"] == 4
    held = SubclusterModels.model_validate(both["user_config"]).stages
    assert [(s.plan, s.module) for s in held] == [(p, m) for p in ("plan-1", "plan-2") for m in "ab"]
    scaled = stage_applications(app.session, app.plan, app.profiles, app.pools, {StageRef("b", "p0", 0): 5})
    assert scaled[0]["deployments"][0]["num_replicas"] == 5, "as many as its largest stage requests"


def test_a_subcluster_in_pods_of_another_template_is_another_application() -> None:
    app = replace(
        application("both").model("a", outputs=((2, 2),), memory=(5, 7)).model("b", memory=(5, 9)).edge("a", "b"),
        subcluster="all",
        batch_size=2,
    )
    spec = app.pools[EMULATED].spec.model_copy(update={"ray_resource": "a100@3f9a0c51"})
    templated = {EMULATED: app.pools[EMULATED].model_copy(update={"spec": spec})}

    (made,) = stage_applications(app.session, app.plan, app.profiles, templated, {})

    assert made["name"] == subcluster_name("default/both", f"{EMULATED}.3f9a0c51", 1, "all")
    assert parse_application(made["name"]) == ApplicationName("default/both", None, None, "all")
    assert made["deployments"][0]["ray_actor_options"]["resources"] == {"a100@3f9a0c51": 1}


def test_each_session_has_its_own_path() -> None:
    assert route_prefix("default/traffic") == "/default/traffic"


def stages(app: Application, **replicas: int) -> list[dict[str, Any]]:
    counts = {StageRef(module, "p0", 0): count for module, count in replicas.items()}
    return stage_applications(app.session, app.plan, app.profiles, app.pools, counts)


def frontend(app: Application) -> dict[str, Any]:
    return frontend_application(app.session, app.plan, app.profiles, app.pools, request_log=app.request_log)


def without_deployments(app: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in app.items() if key != "deployments"}


def test_they_are_json_and_deterministic() -> None:
    first = [frontend(detector_with_crops()), *stages(detector_with_crops())]
    assert json.loads(json.dumps(first)) == first
    assert [frontend(detector_with_crops()), *stages(detector_with_crops())] == first


def test_stages_without_replicas_have_no_application() -> None:
    app = detector_with_crops()
    assert stages(app, **{model.name: 0 for model in app.models}) == []
    together = replace(app, functions=(), edges=(), subcluster="shared")
    assert stages(together, **{model.name: 0 for model in app.models}) == []


def test_one_application_for_each_stage() -> None:
    two = Application("a", application("a").model("m").models, stages=2)
    assert [app["name"] for app in stages(two)] == [
        "partita.default.a.plan-1.m.p0.0",
        "partita.default.a.plan-1.m.p0.1",
    ]
    assert all(app["route_prefix"] is None for app in stages(two))


def test_scaling_changes_only_the_number_of_replicas() -> None:
    app = application("a").model("m")
    ((one,), (three,)) = stages(app), stages(app, m=3)
    assert without_deployments(one) == without_deployments(three)
    (before,), (after,) = one["deployments"], three["deployments"]
    assert (before["num_replicas"], after["num_replicas"]) == (1, 3)
    assert before | {"num_replicas": 3} == after


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(detector_with_crops().planned("plan-2", stages=2), id="another plan"),
        pytest.param(detector_with_crops().slo(50), id="another SLO"),
        pytest.param(detector_with_crops().model("more"), id="another DAG"),
    ],
)
def test_a_new_epoch_changes_only_the_user_config_of_the_frontend(after: Application) -> None:
    old, new = frontend(detector_with_crops()), frontend(after)
    assert without_deployments(old) == without_deployments(new)
    (before,), (later,) = old["deployments"], new["deployments"]
    assert before["user_config"] != later["user_config"]
    assert before | {"user_config": later["user_config"]} == later


def test_several_frontends_are_replicas_of_one_application_and_do_not_change_the_stages() -> None:
    one, two = (detector_with_crops().with_spec(frontend=Frontend(replicas=count)) for count in (1, 2))
    assert without_deployments(frontend(one)) == without_deployments(frontend(two))
    assert [frontend(app)["deployments"][0]["num_replicas"] for app in (one, two)] == [1, 2]
    assert stages(one) == stages(two)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"engine": Engine(type=EngineType.RAY)}, id="an engine"),
        pytest.param({"expose": Expose(ingress=IngressExposure(host="traffic.example.com"))}, id="a public address"),
        pytest.param({"pod_template": PodTemplate(image="registry.example.com/models:1")}, id="a pod template"),
        pytest.param({"frontend": Frontend(request_log=RequestLog(sink="http://sink"))}, id="a sink not granted"),
    ],
)
def test_a_frontend_of_an_earlier_version_gets_nothing_that_it_does_not_know(fields: dict[str, Any]) -> None:
    assert frontend(detector_with_crops().with_spec(**fields)) == frontend(detector_with_crops())


def test_an_slo_does_not_change_the_stages() -> None:
    assert stages(detector_with_crops()) == stages(detector_with_crops().slo(50))


def test_processes_can_read_their_arguments() -> None:
    app = detector_with_crops()
    for each in (app, app.logging_to("http://sink", sample="5%")):
        (deployment,) = frontend(each)["deployments"]
        assert Epoch.model_validate(deployment["user_config"]) == each.epoch
    assert [StageArguments.model_validate(a["args"]).module for a in stages(app)] == ["detector", "classifier"]


def gpus(**fields: Any) -> GPUPool:
    return pool(EMULATED).with_spec(**fields).build()


@pytest.mark.parametrize(
    ("gpu_pool", "divisor", "want_resources", "want_gpus", "want_share"),
    [
        pytest.param(gpus(), 1, {"partita-pool-emulated": 1}, 1, None, id="whole GPUs"),
        pytest.param(
            gpus(sharing=Sharing(mode=SharingMode.MPS, max_divisor=4)),
            4,
            {"partita-pool-emulated": 0.25},
            0.25,
            "25",
            id="a quarter of a GPU",
        ),
        pytest.param(
            gpus(sharing=Sharing(mode=SharingMode.MPS, max_divisor=4)),
            3,
            {"partita-pool-emulated": 0.3333},
            0.3333,
            "33",
            id="a third of a GPU",
        ),
        pytest.param(gpus(sharing=Sharing(mode=SharingMode.CPU)), 1, {"partita-pool-emulated": 1}, 0, None, id="CPUs"),
        pytest.param(
            application("a").model("m").pools[EMULATED], 1, {"partita-pool-emulated": 1}, 0, None, id="emulated"
        ),
        pytest.param(gpus(ray_resource="a100"), 1, {"a100": 1}, 1, None, id="a resource with another name"),
    ],
)
def test_replicas_claim_their_share_of_an_accelerator(
    gpu_pool: GPUPool, divisor: int, want_resources: dict[str, float], want_gpus: float, want_share: str | None
) -> None:
    app = application("a").model("m")
    (module,) = app.plan.spec.modules
    (pipeline,) = module.pipelines
    (stage,) = pipeline.stages
    shared = pipeline.model_copy(update={"stages": (stage.model_copy(update={"vgpu_divisor": divisor}),)})
    spec = app.plan.spec.model_copy(update={"modules": (module.model_copy(update={"pipelines": (shared,)}),)})
    plan = app.plan.model_copy(update={"spec": spec})
    ((key, profile),) = app.profiles.items()
    (times,) = profile.latency
    profiles = {key: profile.model_copy(update={"latency": (times.model_copy(update={"divisor": divisor}),)})}
    (made,) = stage_applications(app.session, plan, profiles, {EMULATED: gpu_pool}, {}, ServingOptions(stage_cpus=0.5))
    options = made["deployments"][0]["ray_actor_options"]
    assert options["resources"] == want_resources
    assert (options["num_cpus"], options["num_gpus"]) == (0.5, want_gpus)
    assert options["runtime_env"]["env_vars"].get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == want_share


@pytest.mark.parametrize("subcluster", [None, "all"])
def test_every_process_gets_the_transport(subcluster: str | None) -> None:
    app = replace(application("a").model("m"), subcluster=subcluster)
    options = ServingOptions(transport=TransportKind.ACTOR_CALLS)
    (stage,) = stage_applications(app.session, app.plan, app.profiles, app.pools, {}, options)
    arguments = StageArguments if subcluster is None else SubclusterArguments
    assert arguments.model_validate(stage["args"]).transport is TransportKind.ACTOR_CALLS
    assert frontend_application(app.session, app.plan, app.profiles, app.pools, options)["args"]["transport"] == (
        "ActorCalls"
    )


def test_the_default_transport_is_not_written_so_running_applications_do_not_restart() -> None:
    app = application("a").model("m")
    (stage,) = stage_applications(app.session, app.plan, app.profiles, app.pools, {})
    frontend = frontend_application(app.session, app.plan, app.profiles, app.pools)
    assert "transport" not in {*stage["args"], *frontend["args"]}


def test_replicas_load_the_content_that_was_profiled_unless_they_are_emulated() -> None:
    app = detector_with_crops()
    profiles = {pair: profile.model_copy(update={"content": "0" * 64}) for pair, profile in app.profiles.items()}
    cpus = {name: pool(name).with_spec(sharing=Sharing(mode=SharingMode.CPU)).build() for name in app.pools}

    real, emulated = (stage_applications(app.session, app.plan, profiles, pools, {}) for pools in (cpus, app.pools))

    assert {made["args"]["build"]["content"] for made in real} == {"0" * 64}
    assert not [made for made in emulated if "content" in made["args"]["build"]]


def test_a_plan_without_its_profiles_is_refused() -> None:
    app = detector_with_crops()
    with pytest.raises(KeyError, match="detector"):
        stage_applications(app.session, app.plan, {}, app.pools, {})
