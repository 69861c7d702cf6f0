"""Drains of worker pods, and the autoscaler's token: no Ray cluster is replaced for them."""

import copy
from typing import Any

import pytest
from tests.builders import pool
from tests.operator.engines.serve_model import stage_config

from partita_api.gpupool import GPUPool
from partita_operator.engines.kuberay.authentication import REQUEST_ANNOTATION, RayToken, mounts_token_everywhere
from partita_operator.engines.kuberay.comparison import is_replaced
from partita_operator.engines.kuberay.pod_drain import DRAIN_VARIABLE
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.worker_groups import pool_group
from partita_operator.settings.kuberay import KubeRaySettings

Json = dict[str, Any]
SETTINGS = KubeRaySettings(image="registry/serving:1", drain_seconds=90)
T4, L4 = pool("t4").build(), pool("l4").build()


def made(
    *pools: GPUPool,
    present: Json | None = None,
    settings: KubeRaySettings = SETTINGS,
    token: RayToken | None = None,
) -> Json:
    apps = [stage_config("plan-1", number, 1, pool=p.ray_resource, share=1.0) for number, p in enumerate(pools)]
    return rayservice("vision", apps, [pool_group(p, settings, 8) for p in pools], present, settings, token)


def drains(document: Json) -> dict[str, tuple[int | None, str | None]]:
    """The grace period and Ray's seconds of each group."""
    found = {}
    for group in document["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
        name = group["groupName"]
        found[name] = (pod.get("terminationGracePeriodSeconds"), variables.get(DRAIN_VARIABLE))
    return found


def older(*pools: GPUPool) -> Json:
    """A RayService that was made before pods had a drain."""
    service = made(*pools)
    for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        del pod["terminationGracePeriodSeconds"]
        (container,) = pod["containers"]
        container["env"] = [variable for variable in container["env"] if variable["name"] != DRAIN_VARIABLE]
    return service


def replaces(present: Json, desired: Json) -> bool:
    return is_replaced(present["spec"]["rayClusterConfig"], desired["spec"]["rayClusterConfig"])


def test_every_worker_drains_and_then_has_time_to_stop() -> None:
    assert drains(made(T4)) == {"frontends": (120, "90"), "t4-gpu": (120, "90")}


def test_an_older_ray_cluster_is_not_replaced_for_it_but_a_new_group_has_it() -> None:
    present = older(T4)

    desired = made(T4, L4, present=present)

    assert not replaces(present, desired)
    assert drains(desired) == {"frontends": (None, None), "t4-gpu": (None, None), "l4-gpu": (120, "90")}


def test_a_ray_cluster_that_is_replaced_anyway_has_it() -> None:
    desired = made(T4, present=older(T4), settings=SETTINGS.model_copy(update={"image": "registry/serving:2"}))

    assert drains(desired) == {"frontends": (120, "90"), "t4-gpu": (120, "90")}


def test_a_ray_cluster_that_is_replaced_for_its_token_has_it() -> None:
    present = older(T4)
    present["metadata"]["annotations"] = {REQUEST_ANNOTATION: "now"}

    desired = made(T4, present=present, token=RayToken("partita-ray", "one", generated=True))

    assert drains(desired) == {"frontends": (120, "90"), "t4-gpu": (120, "90")}


@pytest.mark.parametrize("pools", [pytest.param((T4,), id="the same"), pytest.param((), id="no group is updated")])
def test_a_ray_cluster_that_has_it_keeps_it(pools: tuple[GPUPool, ...]) -> None:
    present = made(T4)

    desired = made(*pools, present=present)

    assert not replaces(present, desired)
    assert drains(desired) == drains(present)


DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


def config(rayservice: Json) -> Json:
    found: Json = rayservice["spec"]["rayClusterConfig"]
    return found


def with_token_everywhere() -> Json:
    """A RayService that was made when all containers of the head had the token."""
    service = copy.deepcopy(made(T4))
    cluster = config(service)
    del cluster["autoscalerOptions"]["volumeMounts"]
    pod = cluster["headGroupSpec"]["template"]["spec"]
    del pod["automountServiceAccountToken"]
    pod["volumes"] = [volume for volume in pod["volumes"] if "projected" not in volume]
    return service


def containers_with_token(cluster: Json) -> set[str]:
    """The containers of all pods that mount the volume with the token."""
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    mounting = {
        container["name"]
        for pod in pods
        for container in pod["containers"]
        for mount in container["volumeMounts"]
        if pod.get("automountServiceAccountToken", True) or mount["mountPath"].startswith(DIRECTORY)
    }
    autoscaler = [mount["mountPath"] for mount in cluster["autoscalerOptions"].get("volumeMounts", ())]
    return mounting | ({"autoscaler"} if DIRECTORY in autoscaler else set())


def test_only_the_autoscaler_has_the_token() -> None:
    assert containers_with_token(config(made(T4))) == {"autoscaler"}


def test_a_ray_cluster_with_the_token_everywhere_is_not_replaced() -> None:
    present = with_token_everywhere()
    desired = made(T4, present=present)

    assert not replaces(present, desired)
    assert mounts_token_everywhere(config(desired))


def test_a_ray_cluster_that_is_replaced_anyway_has_the_token_in_the_autoscaler_only() -> None:
    settings = KubeRaySettings(image="registry/serving:2", drain_seconds=90)
    desired = made(T4, present=with_token_everywhere(), settings=settings)

    assert containers_with_token(config(desired)) == {"autoscaler"}


@pytest.mark.parametrize("pools", [pytest.param((T4,), id="the same"), pytest.param((), id="no group is updated")])
def test_a_ray_cluster_with_the_token_in_the_autoscaler_only_stays_so(pools: tuple[Any, ...]) -> None:
    present = made(T4)
    desired = made(*pools, present=present)

    assert not replaces(present, desired)
    assert containers_with_token(config(desired)) == {"autoscaler"}
