"""Only Ray's autoscaler has a token of Kubernetes, and no running Ray cluster is replaced for it."""

import copy
from typing import Any

import pytest
from tests.operator.engines.kuberay.test_pod_drain import T4, made, replaces

from partita_operator.engines.kuberay.autoscaler_token import mounts_token_everywhere
from partita_operator.settings.kuberay import KubeRaySettings

Json = dict[str, Any]
DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


def config(rayservice: Json) -> Json:
    found: Json = rayservice["spec"]["rayClusterConfig"]
    return found


def older() -> Json:
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


def test_an_older_ray_cluster_is_not_replaced_for_it() -> None:
    present = older()
    desired = made(T4, present=present)

    assert not replaces(present, desired)
    assert mounts_token_everywhere(config(desired))


def test_a_ray_cluster_that_is_replaced_anyway_has_it() -> None:
    settings = KubeRaySettings(image="registry/serving:2", drain_seconds=90)
    desired = made(T4, present=older(), settings=settings)

    assert containers_with_token(config(desired)) == {"autoscaler"}


@pytest.mark.parametrize("pools", [pytest.param((T4,), id="the same"), pytest.param((), id="no group is updated")])
def test_a_ray_cluster_that_has_it_keeps_it(pools: tuple[Any, ...]) -> None:
    present = made(T4)
    desired = made(*pools, present=present)

    assert not replaces(present, desired)
    assert containers_with_token(config(desired)) == {"autoscaler"}
