"""A session's pod template on its way to profiling runs, plans and the engine."""

from typing import Any

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import EPOCH, SimulatedCluster

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import EngineType
from partita_api.meta import SESSION_SPEC_ANNOTATION
from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import digest_of, template_digest
from partita_operator.reconcile.actions import StartProfile
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.session.profiling.profiles import assess_profiles, required_profiles
from partita_operator.reconcile.world import SessionWorld
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings, ProfilingSettings
from partita_operator.settings.pod_templates import PodTemplateSettings

DETECTOR = session("traffic").model("detector")
KEY = "default/traffic"
SETTINGS = OperatorSettings(
    default_engine=EngineType.KUBERAY,
    kuberay=KubeRaySettings(image="registry/serving:1"),
    profiling=ProfilingSettings(backoff_seconds=20),
    pod_templates=PodTemplateSettings(allowed_images=("registry/*",), allowed_claims=("*",)),
)
COUNTED = Cluster(pools={"fast": pool("fast").build().model_copy(update={"status": GPUPoolStatus(capacity=4)})})
FORBIDDEN = {"serviceAccountName": "admin"}


def template(**fields: Any) -> PodTemplate:
    return PodTemplate.model_validate(fields)


def templated(**fields: Any) -> SessionBuilder:
    return DETECTOR.with_spec(pod_template=template(**fields))


def mounted(claim: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": claim}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }


def settled(*sessions: SessionBuilder, on: GPUPool | None = None) -> SimulatedCluster:
    made = SimulatedCluster(settings=SETTINGS)
    made.add(on or pool("fast").gpus(8).build(), *(s.build() for s in sessions))
    made.run(20)
    return made


def test_the_engine_gets_pools_with_the_template_and_a_resource_of_their_own() -> None:
    of_pool = pool("fast").with_spec(pod_template=template(nodeSelector={"zone": "a"})).build()
    own = template(nodeSelector={"disk": "ssd", "zone": "b"}, image="registry/own:1")

    found = settled(templated(**own.model_dump(exclude_defaults=True)), on=of_pool).engine.applied[KEY].pools["fast"]

    assert found.spec.pod_template == template(nodeSelector={"disk": "ssd", "zone": "a"}, image="registry/own:1")
    assert found.ray_resource == f"partita-pool-fast@{template_digest(own)}"


def test_a_template_that_sets_nothing_changes_nothing() -> None:
    made = settled(templated())
    assert made.engine.applied[KEY].pools["fast"].ray_resource == "partita-pool-fast"


def test_another_template_is_another_plan() -> None:
    made = settled(templated(nodeSelector={"disk": "ssd"}))
    before = made.engine.applied[KEY]
    made.add(templated(nodeSelector={"disk": "hdd"}).build())
    made.run(20)
    after = made.engine.applied[KEY]

    assert after.plan.metadata.name != before.plan.metadata.name
    assert after.plan.spec.modules == before.plan.spec.modules
    assert digest_of(after.pools["fast"].ray_resource) == template_digest(template(nodeSelector={"disk": "hdd"}))
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_after_a_forbidden_change_the_present_pods_stay_and_other_sessions_go_on() -> None:
    made = settled(templated(nodeSelector={"disk": "ssd"}), session("other").model("classifier"))
    before = made.engine.applied[KEY]
    made.add(templated(nodeSelector={"disk": "ssd"}, **FORBIDDEN).build())
    made.run(20)

    assert made.condition("traffic", "Ready") == ("False", "ForbiddenPodTemplate")
    assert made.engine.applied[KEY].pools == before.pools
    assert made.engine.applied[KEY].plan.metadata.name == before.plan.metadata.name
    assert made.condition("other", "Ready") == ("True", "Serving")


def test_pods_that_the_platform_does_not_allow_any_more_stay_as_they_are() -> None:
    made = settled(templated(image="registry/own:1"))
    before = made.engine.applied[KEY]
    made.settings = made.settings.model_copy(update={"pod_templates": PodTemplateSettings()})
    made.run(20)

    assert made.engine.applied[KEY] is before
    assert made.condition("traffic", "Ready") == ("False", "ForbiddenPodTemplate")


def test_a_forged_record_in_a_plan_does_not_pass_the_policy() -> None:
    made = settled(templated(nodeSelector={"disk": "ssd"}))
    (plan,) = made.plans.values()
    forged = templated(nodeSelector={"disk": "ssd"}, **FORBIDDEN).build().spec.model_dump_json(by_alias=True)
    meta = plan.metadata.model_copy(update={"annotations": {SESSION_SPEC_ANNOTATION: forged}})
    made.plans[plan.metadata.name] = plan.model_copy(update={"metadata": meta})
    made.add(templated(nodeSelector={"disk": "ssd"}).slo(5).build())
    made.run(20)

    assert made.engine.applied[KEY].pools["fast"].spec.pod_template.service_account_name is None


def test_a_pool_with_an_image_of_its_own_refuses_the_sessions_image() -> None:
    made = settled(
        templated(image="registry/own:1"), on=pool("fast").with_spec(pod_template=template(image="rocm:1")).build()
    )

    assert made.condition("traffic", "Ready") == ("False", "ForbiddenPodTemplate")
    (ready,) = [c.message for c in made.session("traffic").status.conditions if c.type == "Ready"]
    assert "GPUPool fast needs an image of its own, rocm:1" in ready


def key(wanting: SessionBuilder) -> str:
    return required_profiles(wanting.build(), COUNTED, SETTINGS).keys["detector", "fast"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({}, {"nodeSelector": {"disk": "ssd"}}, True, id="nodes"),
        pytest.param({}, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, True, id="a queue"),
        pytest.param({}, {"image": "registry/own:1"}, False, id="an image"),
        pytest.param(mounted("a"), mounted("b"), False, id="models of another claim"),
        pytest.param({}, {"env": [{"name": "MODEL_SIZE", "value": "large"}]}, False, id="a variable"),
        pytest.param(mounted("a"), mounted("a"), True, id="the same"),
    ],
)
def test_sessions_share_profiles_unless_their_models_may_differ(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    assert (key(templated(**one)) == key(templated(**other))) is same


def test_without_a_template_profiles_are_those_of_before_sessions_had_templates() -> None:
    assert key(DETECTOR) == key(templated())


def test_profiling_runs_have_the_sessions_template() -> None:
    world = SessionWorld(templated(image="registry/own:1").build(), COUNTED, SETTINGS)

    (start,) = assess_profiles(world, EPOCH).actions

    assert isinstance(start, StartProfile)
    assert start.pool.spec.pod_template.image == "registry/own:1"
