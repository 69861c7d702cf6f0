"""What Partita relies on in KubeRay, of the double and of the real operator, on a control plane without nodes.

The real one runs if KUBERAY_OPERATOR names its program.
"""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.builders import pool
from tests.operator.engines.kuberay.kuberay_crds import KINDS, kuberay_definitions
from tests.operator.engines.kuberay.kuberay_double import KubeRayDouble
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.engines.serve_model import stage_config
from tests.operator.kubectl import Json, Kubectl, cluster_with_crds
from tests.patience import eventually

from partita_api.gpupool import GPUPool
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.engines.kuberay.authentication import SECRET
from partita_operator.engines.kuberay.engine import KubeRayEngine
from partita_operator.engines.kuberay.fault_tolerance import PASSWORD_KEY
from partita_operator.engines.kuberay.pod_numbers import scaling
from partita_operator.engines.kuberay.ray_secrets import RaySecrets
from partita_operator.engines.kuberay.rayservice_manifest import (
    LABELS,
    NAME,
    rayservice,
    while_groups_are_appended,
    worker_groups,
)
from partita_operator.engines.kuberay.state import clusters, explanation, is_ready
from partita_operator.engines.kuberay.worker_groups import NUMBERS, pool_group
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.settings.kuberay import KubeRaySettings

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(600)]

cluster = cluster_with_crds
SETTINGS = KubeRaySettings(image="registry/serving:1")
PART_OF = {"app.kubernetes.io/part-of": "partita"}
T4, L4 = pool("t4").build(), pool("l4").build()


@pytest.fixture(scope="module", params=["double", "real"])
def controller(
    request: pytest.FixtureRequest, cluster: Kubectl, control_plane: ControlPlane, tmp_path_factory: Any
) -> Iterator[str]:
    """KubeRay's controller in a namespace, either the double or the real one."""
    logs: Path = tmp_path_factory.mktemp("kuberay")
    if request.param == "real":
        with running_kuberay(cluster, logs):
            yield "real"
        return
    headers = {"Authorization": f"Bearer {control_plane.token}"}
    trusted = ssl.create_default_context(cafile=str(control_plane.authority.certificate))
    with (
        kuberay_definitions(cluster, *KINDS),
        httpx.Client(base_url=control_plane.url, headers=headers, verify=trusted, timeout=60) as api,
        KubeRayDouble(api, "kuberay-double", None, logs).playing(),
    ):
        yield "double"


@pytest.fixture
def users(controller: str, cluster: Kubectl) -> Iterator[Kubectl]:
    """The controller's namespace, without RayServices."""
    namespace = f"kuberay-{controller}"
    found = Kubectl(cluster.kubeconfig, namespace)
    if found.get("namespace", namespace) is None:
        cluster("create", "namespace", namespace)
    yield found
    found("delete", "rayservices,rayclusters", "--all", "--timeout=120s")


def service(users: Kubectl, name: str = NAME) -> Json:
    """A RayService as it is."""
    found = users.get("rayservice", name)
    assert found is not None
    return found


def exist(users: Kubectl, rayservice: Json) -> bool:
    """Whether the RayClusters of a RayService exist. Its status has their names before."""
    names = clusters(rayservice)
    return bool(names) and all(users.get("raycluster", name) is not None for name in names)


def manifest(users: Kubectl, replicas: int, *pools: GPUPool, settings: KubeRaySettings = SETTINGS) -> Json:
    """The RayService with a stage on the first pool."""
    stage = stage_config("plan-1", 0, replicas, pool=pools[0].ray_resource)
    groups = [pool_group(p, settings, 8) for p in pools]
    return rayservice(users.namespace, [stage], groups, users.get("rayservice", NAME), settings)


def applied(users: Kubectl, replicas: int, *pools: GPUPool, settings: KubeRaySettings = SETTINGS) -> Json:
    """The RayService, once the controller has seen it.

    The controller takes one RayService after the other, so it has seen this one when it has made the Ray cluster of the
    next. Its `observedGeneration` does not tell: it stays if nothing else of the status changes.
    """
    desired = manifest(users, replicas, *pools, settings=settings)
    following = {**desired, "metadata": {**desired["metadata"], "name": "following"}}
    users.apply(desired)
    users.apply(following)
    eventually(lambda: exist(users, service(users, "following")) and exist(users, service(users)))
    users("delete", "rayservice", "following", "--timeout=120s")
    return service(users)


def live(users: Kubectl, rayservice: Json) -> Json:
    """The one RayCluster of a RayService."""
    (name,) = clusters(rayservice)
    found = users.get("raycluster", name)
    assert found is not None
    return found


def pods(document: Json) -> list[tuple[int, ...]]:
    """The numbers of the groups of a RayService or a RayCluster."""
    spec = document["spec"]
    groups = spec["rayClusterConfig" if "rayClusterConfig" in spec else "workerGroupSpecs"]
    listed = groups["workerGroupSpecs"] if isinstance(groups, dict) else groups
    return [tuple(group[field] for field in NUMBERS) for group in listed]


def test_a_ray_cluster_is_made_and_is_pending_until_it_serves(users: Kubectl) -> None:
    found = applied(users, 2, T4)

    cluster = live(users, found)
    assert LABELS.items() <= cluster["metadata"]["labels"].items()
    assert pods(cluster) == pods(found) == [(0, 0, 0), (2, 2, 2)]
    assert found["status"]["pendingServiceStatus"]["rayClusterName"] == cluster["metadata"]["name"]
    assert not is_ready(found)
    assert "starts the Ray cluster" in explanation(found)


def test_numbers_are_not_copied_to_the_ray_cluster_and_what_partita_writes_there_stays(users: Kubectl) -> None:
    before = live(users, applied(users, 1, T4))

    found = applied(users, 3, T4)
    assert pods(found)[1] == (3, 3, 3)
    assert pods(live(users, found)) == pods(before)

    operations = scaling(live(users, found), worker_groups(found))
    users("patch", "raycluster", before["metadata"]["name"], "--type=json", "-p", json.dumps(operations))
    after = live(users, applied(users, 4, T4))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert pods(after)[1] == (3, 3, 3)


def test_an_appended_group_changes_the_ray_cluster_in_place_with_all_numbers(users: Kubectl) -> None:
    before = live(users, applied(users, 1, T4))

    found = applied(users, 2, T4, L4)

    eventually(lambda: len(pods(live(users, found))) == 3)
    after = live(users, found)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert pods(after) == pods(found) == [(0, 0, 0), (2, 2, 2), (0, 0, 0)]


def test_pods_stay_while_groups_are_appended(users: Kubectl) -> None:
    cluster, desired = live(users, applied(users, 3, T4)), manifest(users, 1, T4, L4)

    first = while_groups_are_appended(desired, cluster)
    assert pods(first) == [(0, 0, 0), (3, 3, 3), (0, 0, 0)]
    users.apply(first)

    eventually(lambda: len(pods(live(users, service(users)))) == 3)
    after = live(users, service(users))
    assert after["metadata"]["uid"] == cluster["metadata"]["uid"]
    assert pods(after) == pods(first)
    assert while_groups_are_appended(desired, after) == desired


def test_numbers_of_a_ray_cluster_that_is_replaced_are_those_of_the_new_one(users: Kubectl) -> None:
    cluster = live(users, applied(users, 3, T4))
    desired = manifest(users, 1, T4, L4, settings=KubeRaySettings(image="registry/serving:2"))

    assert while_groups_are_appended(desired, cluster) == desired


def test_a_changed_pod_makes_another_ray_cluster(users: Kubectl) -> None:
    before = live(users, applied(users, 1, T4))

    applied(users, 1, T4, settings=KubeRaySettings(image="registry/serving:2"))

    def of_new_image() -> list[Json]:
        found = [users.get("raycluster", name) for name in clusters(service(users))]
        return [made for made in found if made and "serving:2" in str(made["spec"]["headGroupSpec"])]

    eventually(lambda: len(of_new_image()) == 1)
    assert of_new_image()[0]["metadata"]["uid"] != before["metadata"]["uid"]


def test_pods_keep_our_probes(users: Kubectl, controller: str) -> None:
    if controller == "double":
        pytest.skip("the double makes no pods")
    applied(users, 1, T4)

    def made() -> list[Json]:
        return users.list("pods", "-l", "ray.io/is-ray-node=yes")

    eventually(lambda: len(made()) == 2)
    for pod in made():
        ray, *_ = pod["spec"]["containers"]
        assert {*ray["livenessProbe"]} & {"httpGet", "exec"} == {"httpGet"}
        assert {*ray["readinessProbe"]} & {"httpGet", "exec"} == {"httpGet"}


async def test_the_state_in_the_redis_is_removed_with_the_password_of_the_secret(
    users: Kubectl, controller: str, control_plane: ControlPlane
) -> None:
    if controller == "double":
        pytest.skip("the double runs no Jobs")
    settings = SETTINGS.model_copy(
        update={
            "redis_address": "redis:6379",
            "redis_password": SecretStr("s3cret"),
            "dashboard_url": "http://127.0.0.1:9",
        }
    )
    key = f"{users.namespace}/traffic"
    async with KubernetesClient(await load_config(control_plane.kubeconfig)) as client:
        await RaySecrets(client, settings).ensure(users.namespace)
        stage = stage_config("plan-1", 0, 1, pool=T4.ray_resource, session=key)
        users.apply(rayservice(users.namespace, [stage], [pool_group(T4, settings, 8)], None, settings))
        eventually(lambda: exist(users, service(users)))
        name = live(users, service(users))["metadata"]["name"]
        eventually(lambda: bool(users.list("pods", "-l", f"ray.io/cluster={name},ray.io/node-type=head")))
        engine = KubeRayEngine(client, settings)
        assert not await engine.remove(key)
        await engine.close()

    def cleaning() -> list[Json]:
        return users.list("pods", "-l", f"ray.io/cluster={name},ray.io/node-type=redis-cleanup")

    eventually(lambda: bool(cleaning()))
    (pod,) = cleaning()
    (container,) = pod["spec"]["containers"]
    (password,) = [variable for variable in container["env"] if variable["name"] == "REDIS_PASSWORD"]
    assert password["valueFrom"] == {"secretKeyRef": {"name": SECRET, "key": PASSWORD_KEY}}
    assert PART_OF.items() <= pod["metadata"]["labels"].items(), "the network policy of the chart's Redis knows it"
    assert users.get("secret", SECRET) is not None

    ended = json.dumps({"status": {"phase": "Succeeded"}})  # there is no kubelet
    users("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", ended)
    eventually(lambda: users.get("raycluster", name) is None)
    eventually(lambda: users.get("rayservice", NAME) is None)
    eventually(lambda: users.get("secret", SECRET) is None)
