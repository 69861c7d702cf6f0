"""The applied RayService: its content, and what may change without a new Ray cluster."""

import json
import re
from typing import Any

import pytest
from tests.builders import pool
from tests.operator.engines.kuberay.kuberay_crds import complaints
from tests.operator.engines.serve_model import frontend_config, stage_config

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import Emulation, GPUPool
from partita_operator.engines.app_config import AppConfig
from partita_operator.engines.kuberay.authentication import SECRET
from partita_operator.engines.kuberay.fault_tolerance import PASSWORD_KEY
from partita_operator.engines.kuberay.rayservice_manifest import (
    applications_of,
    rayservice,
    serve_config,
    worker_groups,
)
from partita_operator.engines.kuberay.worker_groups import (
    FRONTEND_RESOURCE,
    NUMBERS,
    WorkerGroup,
    group_name,
    merged,
    pod_capacity,
    pods_needed,
    pool_group,
)
from partita_operator.engines.serve_state import UnreadableConfigError
from partita_operator.reconcile.object_changes import contains
from partita_operator.settings.kuberay import KubeRaySettings

SETTINGS = KubeRaySettings(image="registry/serving:1.2.3")
T4 = pool("t4").on_nodes({"nvidia.com/gpu.product": "Tesla-T4"}).build()
L4 = pool("l4").build()
SLICES = pool("a100").with_spec(resource_name="nvidia.com/mig-1g.5gb").build()
EMULATED = pool("ghost").with_spec(emulation=Emulation(slowdown=Quantity("1"))).build()
Json = dict[str, Any]


def frontend(session: str = "default/traffic") -> AppConfig:
    options = {"num_cpus": 0.5, "resources": {FRONTEND_RESOURCE: 1}}
    (deployment,) = frontend_config("plan-1")["deployments"]
    name = f"partita.{session.replace('/', '.')}.frontend"
    return {"name": name, "deployments": [{**deployment, "num_replicas": 1, "ray_actor_options": options}]}


def stage(of: GPUPool, replicas: int, share: float = 1.0, number: int = 0) -> AppConfig:
    return stage_config("plan-1", number, replicas, pool=of.ray_resource, share=share)


def rendered(
    apps: list[AppConfig],
    *pools: GPUPool,
    present: Json | None = None,
    settings: KubeRaySettings = SETTINGS,
    most: int = 8,
) -> Json:
    return rayservice("vision", apps, [pool_group(p, settings, most) for p in pools], present, settings)


def groups(manifest: Json) -> dict[str, WorkerGroup]:
    return {group["groupName"]: group for group in worker_groups(manifest)}


def pods(manifest: Json) -> list[tuple[str, int]]:
    """Groups in their order, and the pods of each."""
    return [(group["groupName"], group["replicas"]) for group in worker_groups(manifest)]


def without_numbers(manifest: Json) -> Json:
    """The fields that KubeRay compares to decide whether to replace the Ray cluster."""
    cluster: Json = json.loads(json.dumps(manifest["spec"]["rayClusterConfig"]))
    for group in cluster["workerGroupSpecs"]:
        for field in NUMBERS:
            del group[field]
    return cluster


EVERYTHING = KubeRaySettings.model_validate(
    {
        "image": "registry/serving:1.2.3",
        "imagePullSecrets": ["registry"],
        "rayVersion": "2.60.0",
        "head": {"resources": {"cpu": "4", "memory": "8Gi"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
        "frontends": {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {
                "gatewayClassName": "istio",
                "intervalSeconds": 10,
                "stepSizePercent": 20,
                "maxSurgePercent": 50,
            },
        },
        "redisAddress": "redis.ray.svc:6379",
        "redisSecret": "redis",
        "authSecret": "ray-token",
    }
)


@pytest.mark.parametrize("settings", [SETTINGS, EVERYTHING], ids=["defaults", "everything set"])
@pytest.mark.parametrize("pools", [(), (T4, L4, SLICES, EMULATED)], ids=["no pool", "all kinds of pools"])
def test_kuberays_schema_knows_every_field(settings: KubeRaySettings, pools: tuple[GPUPool, ...]) -> None:
    manifest = rendered([frontend()], *pools, settings=settings)

    assert complaints("rayservices", manifest) == []
    cluster = {"kind": "RayCluster", "spec": manifest["spec"]["rayClusterConfig"]}
    assert complaints("rayclusters", cluster) == []


def test_the_schema_check_finds_unknown_fields_and_wrong_types() -> None:
    manifest = rendered([frontend()])
    manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["replicaz"] = 1
    manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = "many"

    found = " ".join(complaints("rayservices", manifest))

    assert "replicaz" in found
    assert "'many'" in found


def test_rays_autoscaler_reads_the_requested_placement() -> None:
    read = pytest.importorskip("ray.autoscaler._private.kuberay.autoscaling_config", reason="Ray is not installed")
    manifest = rendered([frontend(), stage(T4, 2), stage(SLICES, 3, number=1)], T4, SLICES, EMULATED)
    cluster = {"metadata": {"name": "c", "namespace": "vision"}, "spec": manifest["spec"]["rayClusterConfig"]}

    node_types = read._derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]

    custom = {
        name: {r: units for r, units in found["resources"].items() if r.startswith("partita-") or r == "GPU"}
        for name, found in node_types.items()
    }
    assert custom == {
        "headgroup": {"GPU": 0},
        "frontends": {"GPU": 0, "partita-frontend": 4},
        "t4-gpu": {"GPU": 1, "partita-pool-t4": 1},
        "a100-mig-1g-5gb": {"GPU": 1, "partita-pool-a100": 1},
        group_name(EMULATED): {"GPU": 0, "partita-pool-ghost": 1},
    }
    assert node_types["headgroup"]["resources"]["CPU"] == 0, "nothing is placed on the head"
    assert (node_types["t4-gpu"]["min_workers"], node_types["t4-gpu"]["max_workers"]) == (2, 2)


@pytest.mark.parametrize(
    ("apps", "want"),
    [
        pytest.param([], [("frontends", 0), ("t4-gpu", 0), ("l4-gpu", 0)], id="nothing"),
        pytest.param(
            [frontend(), stage(T4, 3)], [("frontends", 1), ("t4-gpu", 3), ("l4-gpu", 0)], id="whole accelerators"
        ),
        pytest.param(
            [stage(T4, 3, share=0.5), stage(T4, 1, share=0.5, number=1)],
            [("frontends", 0), ("t4-gpu", 2), ("l4-gpu", 0)],
            id="equal shares of two stages share accelerators",
        ),
        pytest.param(
            [stage(T4, 1, share=0.5), stage(T4, 1, share=0.3333, number=1)],
            [("frontends", 0), ("t4-gpu", 2), ("l4-gpu", 0)],
            id="shares of two sizes do not share accelerators",
        ),
        pytest.param(
            [stage(L4, 7, share=0.1666)], [("frontends", 0), ("t4-gpu", 0), ("l4-gpu", 2)], id="six sixths are a whole"
        ),
        pytest.param(
            [frontend(f"vision/s{n}") for n in range(5)],
            [("frontends", 2), ("t4-gpu", 0), ("l4-gpu", 0)],
            id="four frontends a pod",
        ),
        pytest.param([stage(SLICES, 2)], [("frontends", 0), ("t4-gpu", 0), ("l4-gpu", 0)], id="a pool without a group"),
    ],
)
def test_each_group_has_the_pods_that_its_replicas_need(apps: list[AppConfig], want: list[tuple[str, int]]) -> None:
    assert pods(rendered(apps, T4, L4)) == want


def test_the_plan_sets_the_bounds_of_the_autoscaler() -> None:
    group = groups(rendered([stage(T4, 3)], T4))["t4-gpu"]

    assert (group["minReplicas"], group["maxReplicas"]) == (3, 3)


def test_two_plans_together_get_at_most_the_accelerators_of_the_pool() -> None:
    both_plans = [stage(T4, 2), stage(T4, 2, number=1)]

    group = groups(rendered(both_plans, T4, most=3))["t4-gpu"]

    assert {field: group[field] for field in NUMBERS} == dict.fromkeys(NUMBERS, 3)


def test_only_a_session_that_knows_a_pool_takes_more_of_it() -> None:
    limited = rendered([stage(T4, 4)], T4, most=3)

    assert pods(rendered([stage(T4, 4)], L4, present=limited)) == [("frontends", 0), ("t4-gpu", 3), ("l4-gpu", 0)]
    assert pods(rendered([stage(T4, 2)], L4, present=limited))[1] == ("t4-gpu", 2)


def test_groups_keep_their_places_and_new_ones_are_appended() -> None:
    first = rendered([stage(T4, 1)], T4)
    second = rendered([stage(L4, 2)], L4, present=first)
    third = rendered([stage(T4, 4)], T4, present=second)

    assert pods(second) == [("frontends", 0), ("t4-gpu", 0), ("l4-gpu", 2)]
    assert pods(third) == [("frontends", 0), ("t4-gpu", 4), ("l4-gpu", 0)]
    assert without_numbers(second)["workerGroupSpecs"][:2] == without_numbers(first)["workerGroupSpecs"]
    assert without_numbers(third) == without_numbers(second)


def test_a_pool_with_other_slices_gets_another_group() -> None:
    halves = SLICES.model_copy(
        update={"spec": SLICES.spec.model_copy(update={"resource_name": "nvidia.com/mig-3g.20gb"})}
    )
    before = rendered([stage(SLICES, 2)], SLICES)

    after = rendered([stage(halves, 2)], halves, present=before)

    assert pods(after) == [("frontends", 0), ("a100-mig-1g-5gb", 0), ("a100-mig-3g-20gb", 2)]


def test_the_order_of_applications_does_not_change_the_text() -> None:
    apps = [frontend(), stage(T4, 1), stage(L4, 2, number=1)]
    reordered = [dict(reversed(app.items())) for app in reversed(apps)]

    assert rendered(apps, T4, L4) == rendered(reordered, T4, L4)
    assert serve_config(apps) == serve_config(reordered)
    assert list(applications_of(rendered(apps)).values()) == sorted(apps, key=lambda app: str(app["name"]))


def test_more_replicas_change_only_numbers_and_the_configuration_of_serve() -> None:
    before, after = rendered([stage(T4, 1)], T4), rendered([stage(T4, 2)], T4)

    assert before["spec"]["serveConfigV2"] != after["spec"]["serveConfigV2"]
    assert without_numbers(before) == without_numbers(after)


@pytest.mark.parametrize(
    ("of", "want_selector", "want_limit"),
    [
        pytest.param(T4, {"nvidia.com/gpu.product": "Tesla-T4"}, "nvidia.com/gpu", id="by labels"),
        pytest.param(L4, {"partita.dev/pool": "l4"}, "nvidia.com/gpu", id="by the pool's name"),
        pytest.param(SLICES, {"partita.dev/pool": "a100"}, "nvidia.com/mig-1g.5gb", id="a MIG slice"),
        pytest.param(EMULATED, None, None, id="emulated: anywhere"),
    ],
)
def test_workers_are_where_the_accelerators_are(
    of: GPUPool, want_selector: Json | None, want_limit: str | None
) -> None:
    spec = pool_group(of, SETTINGS, 1)["template"]["spec"]
    (container,) = spec["containers"]

    assert spec.get("nodeSelector") == want_selector
    assert ("affinity" in spec) == (want_selector is not None), "no pods on nodes that wait to be cut"
    limits = container["resources"]["limits"]
    assert {name for name in limits if "/" in name} == ({want_limit} if want_limit else set())
    assert limits.items() >= {"cpu": "2", "memory": "4Gi"}.items()


def test_mps_runs_in_the_pod_whose_gpu_is_divided() -> None:
    def container(of: GPUPool) -> Json:
        (only,) = pool_group(of, SETTINGS, 1)["template"]["spec"]["containers"]
        found: Json = only
        return found

    divided = container(pool("shared").mps(4).build())
    assert divided["lifecycle"]["postStart"]["exec"]["command"] == ["nvidia-cuda-mps-control", "-d"]
    assert {v["name"] for v in divided["env"]} > {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}
    assert "lifecycle" not in container(SLICES)


def test_standby_processes_on_nodes_of_frontends_preload_the_frontend() -> None:
    manifest = rendered([frontend()], T4)
    groups = {g["groupName"]: g for g in manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
    (container,) = groups["frontends"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}

    assert "partita_runtime.serving.frontend" in environment["RAY_preload_python_modules"].split(",")


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({}, None, id="no Redis"),
        pytest.param({"redisAddress": "redis:6379"}, {"redisAddress": "redis:6379"}, id="without a password"),
        pytest.param(
            {"redisAddress": "redis:6379", "redisSecret": "redis"},
            {
                "redisAddress": "redis:6379",
                "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
            },
            id="with a password in a Secret of the namespace",
        ),
        pytest.param(
            {"redisAddress": "redis:6379", "redisPassword": "s3cret"},
            {
                "redisAddress": "redis:6379",
                "redisPassword": {"valueFrom": {"secretKeyRef": {"name": SECRET, "key": PASSWORD_KEY}}},
            },
            id="with a password of the operator",
        ),
        pytest.param(
            {"redisAddress": "redis:6379", "redisPassword": "s3cret", "redisSecret": "redis"},
            {
                "redisAddress": "redis:6379",
                "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
            },
            id="the Secret of the namespace has precedence",
        ),
        pytest.param(
            {"redisAddress": "redis.{namespace}.svc"}, {"redisAddress": "redis.vision.svc"}, id="one in each namespace"
        ),
        pytest.param({"redisPassword": "s3cret"}, None, id="a password without a Redis"),
    ],
)
def test_the_state_of_the_head_is_in_redis_if_there_is_one(settings: Json, want: Json | None) -> None:
    made = rendered([], settings=KubeRaySettings.model_validate({"image": "x", **settings}))

    assert made["spec"]["rayClusterConfig"].get("gcsFaultToleranceOptions") == want
    assert "s3cret" not in str(made)


def test_a_raylet_has_time_to_start_on_a_busy_node() -> None:
    cluster = rendered([frontend()], T4)["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_raylet_start_wait_time_s", "value": "180"} in container["env"]


def test_all_pods_are_restricted_and_none_mounts_a_token_of_kubernetes_by_itself() -> None:
    cluster = rendered([frontend()], T4, settings=EVERYTHING)["spec"]["rayClusterConfig"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    workers = [group["template"]["spec"] for group in cluster["workerGroupSpecs"]]

    for spec in (head, *workers):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            assert container["image"] == "registry/serving:1.2.3"
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert [spec.get("automountServiceAccountToken", True) for spec in (head, *workers)] == [False, False, False]
    assert cluster["autoscalerOptions"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_probes_need_no_program_in_the_image_and_kuberay_adds_none() -> None:
    cluster = rendered([frontend()], T4)["spec"]["rayClusterConfig"]
    head, *workers = (
        group["template"]["spec"]["containers"][0] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    )

    def asked(container: Json) -> list[Json]:
        return [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]

    ray = {"path": "/api/healthz", "port": 52365}
    assert asked(head) == [ray, ray]
    for worker in workers:
        assert asked(worker) == [ray, {"path": "/-/healthz", "port": 8000}]
        assert worker["readinessProbe"]["failureThreshold"] == 1, "a proxy that drains gets no new requests"


@pytest.mark.parametrize(
    ("name", "resource", "want"),
    [
        pytest.param("t4", "nvidia.com/gpu", "t4-gpu", id="plain"),
        pytest.param("a100", "nvidia.com/mig-1g.5gb", "a100-mig-1g-5gb", id="a slice"),
    ],
)
def test_groups_are_named_for_pool_and_slice(name: str, resource: str, want: str) -> None:
    assert group_name(pool(name).with_spec(resource_name=resource).build()) == want


def test_names_that_are_invalid_labels_are_changed_and_stay_distinct() -> None:
    names = {group_name(pool(name).build()) for name in ("x" * 60 + "a", "x" * 60 + "b", "t4.west", "t4-west")}

    assert len(names) == 4
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", name) for name in names)


def test_a_group_of_an_unknown_pool_does_not_change() -> None:
    present = worker_groups(rendered([stage(T4, 1), stage(L4, 1, number=1)], T4, L4))

    assert merged(present, [pool_group(T4, EVERYTHING, 1)])[2] == present[2]
    assert pods_needed(present, [stage(L4, 2)])["l4-gpu"] == 2
    assert pod_capacity(present[2]).resource == "partita-pool-l4"


@pytest.mark.parametrize(
    ("change", "want_words"),
    [
        pytest.param(
            {"metadata": {"name": "partita", "namespace": "vision"}}, "does not belong", id="of another owner"
        ),
        pytest.param({"spec": {"serveConfigV2": "applications: []"}}, "was edited", id="edited"),
    ],
)
def test_objects_of_other_owners_are_not_overwritten(change: Json, want_words: str) -> None:
    with pytest.raises(UnreadableConfigError, match=want_words):
        applications_of({**rendered([]), **change})


def test_fields_that_the_api_server_adds_are_no_difference() -> None:
    manifest = rendered([frontend()], T4)
    stored = json.loads(json.dumps(manifest))
    stored["metadata"]["uid"] = "1"
    for group in worker_groups(stored):
        group["numOfHosts"] = 1  # type: ignore[index]

    assert contains(stored, manifest)
    assert not contains(stored, rendered([frontend()], T4, L4))
    assert not contains(stored, rendered([frontend(), stage(T4, 1)], T4))
