"""Worker groups of sessions with pod templates: their pods, their names, and the pool that they share."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.builders import pool, session
from tests.crds.pod_templates import EVERYTHING
from tests.operator.engines.kuberay.kuberay_crds import complaints
from tests.operator.engines.serve_model import FRONTEND, application, frontend_config, stage_config

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import template_digest, with_digest
from partita_api.session.request_log import RequestLog, SinkAuthorization
from partita_operator.engines.app_config import AppConfig, with_deployment
from partita_operator.engines.kuberay.pod_numbers import is_up, pods_elsewhere, scaling
from partita_operator.engines.kuberay.pod_remarks import pod_remarks, pods_of
from partita_operator.engines.kuberay.rayservice_manifest import rayservice, worker_groups
from partita_operator.engines.kuberay.state import reachable_capacity
from partita_operator.engines.kuberay.worker_groups import (
    FRONTEND_RESOURCE,
    NUMBERS,
    WorkerGroup,
    frontend_group,
    group_name,
    pool_group,
)
from partita_operator.engines.serve_state import ServeReplica, ServeState
from partita_operator.pod_templates.frontend_pods import FrontendPods
from partita_operator.pod_templates.session_pool import TemplateConflictError, session_pool
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.telemetry.sink_authorization import credentials_file

Json = dict[str, Any]
SETTINGS = KubeRaySettings(image="registry/serving:1")
T4 = pool("t4").build()
SSD = PodTemplate(node_selector={"disk": "ssd"})
HDD = PodTemplate(node_selector={"disk": "hdd"})
T4_SSD, T4_HDD = session_pool(T4, SSD), session_pool(T4, HDD)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stage(of: GPUPool, replicas: int, number: int = 0) -> AppConfig:
    return stage_config("plan-1", number, replicas, pool=of.ray_resource)


def frontend(template: PodTemplate | None) -> AppConfig:
    resource = with_digest(FRONTEND_RESOURCE, template_digest(template))
    options = {"num_cpus": 0.5, "resources": {resource: 1}}
    return with_deployment(frontend_config("plan-1"), num_replicas=1, ray_actor_options=options)


def rendered(apps: list[AppConfig], *pools: GPUPool, most: int = 4, present: Json | None = None, **more: Any) -> Json:
    groups = [pool_group(p, SETTINGS, most) for p in pools]
    return rayservice("vision", apps, groups, present, SETTINGS, **more)


def pods(manifest: Json) -> dict[str, int]:
    return {group["groupName"]: group["replicas"] for group in worker_groups(manifest) if group["replicas"]}


def test_a_session_with_a_template_has_groups_of_its_own() -> None:
    groups = [frontend_group(SETTINGS, FrontendPods(SSD)), pool_group(T4_SSD, SETTINGS, 4)]
    before = rendered([frontend(None), stage(T4, 2)], T4)

    made = rayservice("vision", [frontend(SSD), stage(T4, 2), stage(T4_SSD, 1, 1)], groups, before, SETTINGS)

    assert pods(made) == {"t4-gpu": 2, f"frontends-{template_digest(SSD)}": 1, f"t4-gpu-{template_digest(SSD)}": 1}
    assert worker_groups(made)[:2] == [
        {**group, **dict.fromkeys(NUMBERS, count)} for group, count in zip(worker_groups(before), (0, 2), strict=True)
    ], "KubeRay keeps the Ray cluster if groups are only appended"


def test_workers_and_frontends_have_the_template_and_kuberay_knows_every_field() -> None:
    template = PodTemplate.model_validate(EVERYTHING)
    groups = [frontend_group(SETTINGS, FrontendPods(template)), pool_group(session_pool(T4, template), SETTINGS, 4)]

    assert complaints("rayservices", rayservice("vision", [], groups, None, SETTINGS)) == []
    for group in groups:
        pod = group["template"]
        (container,) = pod["spec"]["containers"]
        assert container["image"] == EVERYTHING["image"]
        assert container["envFrom"] == EVERYTHING["envFrom"]
        assert pod["metadata"]["labels"].items() >= EVERYTHING["metadata"]["labels"].items()
        assert pod["metadata"]["labels"]["partita.dev/pod-template"] == template_digest(template)
        for field in ("serviceAccountName", "schedulerName", "priorityClassName", "imagePullSecrets", "volumes"):
            assert pod["spec"][field][-1:] == EVERYTHING[field][-1:]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param((0, 0), (2, 1), (0, 1), id="the other group is not this session's"),
        pytest.param((3, 0), (3, 4), (3, 1), id="the rest of the pool"),
        pytest.param((4, 0), (4, 2), (4, 0), id="the pool is full"),
        pytest.param((4, 0), (1, 3), (1, 3), id="what the other group gives up"),
    ],
)
def test_groups_of_one_pool_have_together_at_most_its_accelerators(
    before: tuple[int, int], after: tuple[int, int], want: tuple[int, int]
) -> None:
    ssd, hdd = group_name(T4_SSD), group_name(T4_HDD)
    first = rendered([stage(T4_SSD, before[0]), stage(T4_HDD, before[1], 1)], T4_SSD)

    made = pods(rendered([stage(T4_SSD, after[0]), stage(T4_HDD, after[1], 1)], T4_HDD, present=first))

    assert (made.get(ssd, 0), made.get(hdd, 0)) == want


def test_groups_of_earlier_templates_leave_with_the_ray_cluster() -> None:
    earlier = rendered([stage(T4_HDD, 1)], T4_HDD, present=rendered([stage(T4_SSD, 1)], T4_SSD))
    assert [group["groupName"] for group in worker_groups(earlier)][1:] == [group_name(T4_SSD), group_name(T4_HDD)]

    other = KubeRaySettings(image="registry/serving:2")
    replaced = rayservice("vision", [stage(T4_HDD, 1)], [pool_group(T4_HDD, other, 4)], earlier, other)

    assert pods(replaced) == {group_name(T4_HDD): 1}
    assert [group["groupName"] for group in worker_groups(replaced)] == ["frontends", group_name(T4_HDD)]


def spec_with(template: PodTemplate | None) -> InferenceSessionSpec:
    return session("traffic").model("detector").with_spec(pod_template=template).build().spec


def of_secret(name: str, template: PodTemplate | None = None, key: str = "token") -> FrontendPods:
    log = RequestLog(sink="http://sink/", authorization=SinkAuthorization(secret_name=name, key=key))
    return FrontendPods.of(spec_with(template), log)


def test_frontends_mount_the_key_of_their_sink_and_other_pods_do_not() -> None:
    group = frontend_group(SETTINGS, of_secret("collector", SSD, "hec"))

    assert complaints("rayservices", rayservice("vision", [], [group], None, SETTINGS)) == []
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["volumes"][-1] == {
        "name": "request-log",
        "secret": {"secretName": "collector", "items": [{"key": "hec", "path": "hec"}], "optional": True},
    }
    mount = {"name": "request-log", "mountPath": "/etc/partita/request-log/collector", "readOnly": True}
    assert container["volumeMounts"][-1] == mount
    assert credentials_file(SinkAuthorization(secret_name="collector", key="hec")) == Path(mount["mountPath"], "hec")
    assert "collector" not in str([frontend_group(SETTINGS), pool_group(T4_SSD, SETTINGS, 4)])


def test_frontends_share_pods_if_they_need_the_same() -> None:
    alike = [of_secret("one"), of_secret("one")]
    others = [of_secret("two"), of_secret("one", key="other"), of_secret("one", SSD), FrontendPods(SSD), FrontendPods()]
    names = [frontend_group(SETTINGS, pods)["groupName"] for pods in (*alike, *others)]
    assert names[0] == names[1]
    assert len(set(names)) == len(others) + 1
    assert FrontendPods.of(spec_with(SSD), RequestLog(sink="http://sink/")) == FrontendPods(SSD)
    assert FrontendPods(SSD).digest == template_digest(SSD)


@pytest.mark.parametrize(
    ("group", "ready", "want"),
    [
        pytest.param("frontends-x", "True", True, id="ready"),
        pytest.param("frontends-x", "False", False, id="starting"),
        pytest.param("frontends", "True", False, id="another group"),
    ],
)
def test_a_group_is_up_once_a_pod_of_it_is_ready(group: str, ready: str, want: bool) -> None:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
    there = [{"metadata": {"labels": {"ray.io/group": group}}, "status": {"conditions": conditions}}]
    assert is_up("frontends-x", [*there, {"metadata": {"labels": {"ray.io/group": "frontends-x"}}}]) is want


def test_frontends_of_the_next_step_get_their_pods_before() -> None:
    groups = [frontend_group(SETTINGS, FrontendPods(SSD))]

    made = rayservice("vision", [frontend(None)], groups, None, SETTINGS, awaited=[frontend(SSD)])

    assert pods(made) == {"frontends": 1, f"frontends-{template_digest(SSD)}": 1}
    assert "@" not in made["spec"]["serveConfigV2"], "Serve gets them later"


def sized(*counts: tuple[GPUPool, int]) -> list[WorkerGroup]:
    return [{**pool_group(of, SETTINGS, 8), **dict.fromkeys(NUMBERS, count)} for of, count in counts]


def test_a_group_gets_pods_of_another_template_only_when_they_are_gone() -> None:
    def found(live: int) -> Json:
        cluster = {
            "metadata": {"resourceVersion": "7"},
            "spec": {"workerGroupSpecs": sized((T4_SSD, live), (T4_HDD, 0))},
        }
        operations = scaling(cluster, sized((T4_SSD, 0), (T4_HDD, 2)))
        return {o["path"].removeprefix("/spec/workerGroupSpecs/"): o["value"] for o in operations[1:]}

    assert "1/replicas" not in found(live=2)
    assert found(live=1)["1/replicas"] == 1


def test_frontends_of_another_template_wait_for_no_pod() -> None:
    groups = [frontend_group(SETTINGS), frontend_group(SETTINGS, FrontendPods(SSD))]

    def counted(*counts: int) -> list[WorkerGroup]:
        return [{**group, **dict.fromkeys(NUMBERS, count)} for group, count in zip(groups, counts, strict=True)]

    cluster = {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": counted(1, 0)}}
    operations = {
        o["path"].removeprefix("/spec/workerGroupSpecs/"): o["value"] for o in scaling(cluster, counted(0, 1))
    }

    assert operations["1/replicas"] == 1


def test_pods_of_all_templates_count_for_the_pool() -> None:
    clusters = [{"metadata": {"namespace": "b"}, "spec": {"workerGroupSpecs": sized((T4, 1), (T4_SSD, 2))}}]
    assert pods_elsewhere(clusters, "a") == {"partita-pool-t4": 3}

    up = ServeReplica("RUNNING", node="n1", started=0.0)
    state = ServeState(running=True, applications={"x": application(stage(T4_SSD, 1), [up])})
    of = T4_HDD.model_copy(update={"status": GPUPoolStatus(capacity=4, free=Quantity(2))})
    assert reachable_capacity(state, [of])["partita-pool-t4"] == 3


def test_names_of_groups_stay_readable_distinct_and_short() -> None:
    names = [group_name(session_pool(pool(name).build(), SSD)) for name in ("t4", "x" * 60 + "a", "x" * 60 + "b")]

    assert names[0] == f"t4-gpu-{template_digest(SSD)}"
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", name) for name in names)


def test_a_template_that_does_not_fit_to_the_pools_is_a_conflict() -> None:
    def tolerating(keys: range) -> PodTemplate:
        return PodTemplate.model_validate({"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in keys]})

    full = pool("t4").with_spec(pod_template=tolerating(range(16))).build()

    assert session_pool(full, tolerating(range(4))).spec.pod_template == tolerating(range(4)).model_copy(
        update={"tolerations": (*tolerating(range(4)).tolerations, *tolerating(range(4, 16)).tolerations)}
    )
    with pytest.raises(TemplateConflictError, match=r"spec.podTemplate.tolerations: with .* of GPUPool t4"):
        session_pool(full, tolerating(range(20, 24)))


def waiting(template: PodTemplate | None) -> Json:
    digest = template_digest(template)
    labels = {"partita.dev/pool": "t4", **({"partita.dev/pod-template": digest} if digest else {})}
    states = [{"image": "x", "state": {"waiting": {"reason": "ErrImagePull"}}}]
    return {"metadata": {"labels": labels}, "spec": {}, "status": {"containerStatuses": states}}


def test_a_session_hears_of_its_own_pods_and_of_those_without_a_template() -> None:
    configs = [{**stage(T4_SSD, 1)}, {**frontend(SSD), "name": FRONTEND}]
    state = ServeState(running=True, applications={c["name"]: application(c) for c in configs})

    def remarks(*pods: Json) -> list[str]:
        found = pod_remarks(pods_of(state, "default/traffic", pods), NOW)
        return [str(remark).partition(" do not start")[0] for remark in found]

    assert remarks(waiting(None), waiting(SSD), waiting(HDD)) == [
        "Pods of pool t4",
        "Pods of pool t4 and the session's podTemplate",
    ]
