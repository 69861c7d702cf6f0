"""Sessions on devices of a DRA driver, on real nodes: Kubernetes' test driver prepares the devices of their pods."""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.dra_driver import PROGRAM_VARIABLE, SUITE, DraDriver, dra_driver
from tests.cluster.kuberay_sessions import INPUTS, WORKERS, Watch, installed_chart, session
from tests.cluster.steady_load import ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS, is_ready
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kubectl import Json, Kubectl, condition, eventually, reason

NODE = "l4"
DEVICES = 3
PROFILERS = "app.kubernetes.io/component=profiler"
ON_CONTROL = {"nodeSelector": {"kubernetes.io/hostname": "control"}}
KUBERAY = {
    "head": {"resources": {"cpu": "1", "memory": "3Gi"}, **ON_CONTROL},
    "frontends": {"resources": {"cpu": "400m", "memory": "1500Mi"}, **ON_CONTROL},
}
"""The node with devices has its CPUs for the pods that claim them."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="the driver runs beside the kubelets of this machine"),
    pytest.mark.skipif(
        not os.environ.get(PROGRAM_VARIABLE),
        reason=f"set {PROGRAM_VARIABLE} to the path of Kubernetes' DRA test driver",
    ),
]


class Devices:
    """Users with sessions on devices of a driver."""

    def __init__(self, users: Kubectl, driver: DraDriver) -> None:
        self.users, self.driver, self.watch = users, driver, Watch(users)

    def apply_session(self, name: str, pool: str, largest_batch: int = 4) -> None:
        """Sessions with different largest batches need different profiles."""
        manifest = session(name, 5, largest_batch)
        manifest["spec"]["pools"] = [pool]
        self.users.apply(manifest)

    def pool_state(self, pool: str) -> tuple[str, str, int]:
        """Status and reason of the pool, and its accelerators."""
        found = self.users.get("gpool", pool)
        return (*reason(found), ((found or {}).get("status") or {}).get("capacity", 0))

    async def until_pool(self, pool: str, *want: object) -> None:
        await eventually(lambda: self.pool_state(pool), lambda found: found == want)

    def pods(self, labels: str, pool: str) -> list[Json]:
        found = self.users.list("pods", "-l", f"{labels},partita.dev/pool={pool}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def pod(self, labels: str, pool: str) -> Json:
        """The only pod of the pool, once its claim has been made."""
        (found,) = await eventually(lambda: self.pods(labels, pool), lambda pods: pods and claim_name(pods[0]))
        return found

    def unplaced_worker(self) -> Json:
        """The first worker without a node."""
        return next((pod for pod in self.pods(WORKERS, "gpus") if "nodeName" not in pod["spec"]), {"status": {}})

    def profiler(self, pool: str) -> Json:
        """The first pod that profiles."""
        return next(iter(self.pods(PROFILERS, pool)), {"status": {}})

    async def device(self, pod: Json) -> str:
        """The device that the pod has claimed, once the driver has brought it into the pod's container."""
        claim = claim_name(pod)
        variable = re.sub("[^a-zA-Z0-9]", "_", f"claim_{claim}_accelerator")
        inside = ("exec", pod["metadata"]["name"], "--", "env")
        await eventually(lambda: self.users.run(*inside).stdout, lambda found: f"{variable}=true" in found.split())
        found = self.users.get("resourceclaim", claim)
        assert found is not None
        (reserved,) = found["status"]["reservedFor"]
        assert reserved["uid"] == pod["metadata"]["uid"]
        (result,) = found["status"]["allocation"]["devices"]["results"]
        assert (result["request"], result["driver"]) == ("accelerator", self.driver.name)
        device: str = result["device"]
        return device

    async def until_told(self, name: str, type: str, waits: Callable[[], Json], *words: str) -> None:
        """The session's condition has the name of the claim of the pod that `waits`, and these words."""

        def missing() -> list[str]:
            message = condition(self.users.get("isess", name), type).get("message", "")
            claim = claim_name(waits()) or "no claim"
            return [word for word in (f"ResourceClaim {claim} is", *words) if word not in message]

        await eventually(missing, lambda words: words == [])

    def delete_session(self, name: str) -> None:
        self.users("delete", "isess", name, "--timeout=300s")


def claim_name(pod: Json) -> str:
    """Name of the claim that Kubernetes has made for the pod; empty if it has not yet."""
    claims = pod["status"].get("resourceClaimStatuses") or [{}]
    name: str = claims[0].get("resourceClaimName", "")
    return name


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A namespace in a cluster with KubeRay and the chart."""
    admin = Kubectl(KUBECONFIG, "default")
    with running_kuberay(admin, tmp_path_factory.mktemp("kuberay")), installed_chart(admin, KUBERAY) as users:
        yield users


@pytest.fixture
def devices(users: Kubectl, tmp_path: Path) -> Iterator[Devices]:
    """A driver. Afterwards the sessions and pools of the test are removed, and the pods, which need it to end."""
    with dra_driver("gpu.partita.test", Kubectl(KUBECONFIG, "default"), tmp_path) as driver:
        yield Devices(users, driver)
        users("delete", "isess", "--all", "--timeout=300s")
        users("delete", "gpool", "-l", f"suite={SUITE}", "--timeout=120s")
        users("wait", "--for=delete", "pods", "-l", "partita.dev/pool in (gpus,small,large)", "--timeout=300s")


async def test_pods_of_a_session_claim_devices_and_conditions_name_the_claim_that_waits(devices: Devices) -> None:
    users, driver, watch = devices.users, devices.driver, devices.watch
    users.apply(driver.pool("gpus"), driver.pool("others", product="none"))
    await devices.until_pool("gpus", "False", "DeviceClassMissing", 0)
    driver.create_class()
    await devices.until_pool("gpus", "False", "NoAccelerators", 0)
    driver.start(NODE, DEVICES)
    await devices.until_pool("gpus", "True", "Available", DEVICES)
    await devices.until_pool("others", "False", "NoAccelerators", 0)

    devices.apply_session("first", "gpus")
    profiler = await devices.pod(PROFILERS, "gpus")
    assert (await devices.device(profiler)).startswith("device-")
    first = await watch.until_serving("first", pods=1 + 1)
    worker = await devices.pod(WORKERS, "gpus")
    assert (await devices.device(worker)).startswith("device-")
    assert worker["spec"]["nodeName"] == NODE
    start_load(users, IMAGE, first, INPUTS)

    # Others take the devices that the pool's sessions do not use.
    driver.take(DEVICES - 1)
    devices.apply_session("second", "gpus")  # has the profile already
    await devices.until_told("second", "RolledOut", devices.unplaced_worker, "not allocated", "cannot allocate all")
    devices.apply_session("third", "gpus", largest_batch=2)
    profiler_waits = partial(devices.profiler, "gpus")
    await devices.until_told("third", "Profiled", profiler_waits, "not allocated", "cannot allocate all")
    devices.delete_session("third")
    driver.give_back()
    await watch.until_serving("second", pods=1 + 2)

    with driver.hanging():
        devices.apply_session("third", "gpus", largest_batch=2)
        words = "allocated, but its driver has not prepared the device"
        await devices.until_told("third", "Profiled", profiler_waits, words)
    await eventually(lambda: reason(users.get("isess", "third"), "Profiled"), lambda found: found[0] == "True")
    devices.delete_session("third")

    driver.delete_class()
    await devices.until_pool("gpus", "False", "DeviceClassMissing", 0)
    driver.create_class()
    await devices.until_pool("gpus", "True", "Available", DEVICES)
    driver.stop()
    await devices.until_pool("gpus", "False", "NoAccelerators", 0)
    driver.start(NODE, DEVICES)
    await devices.until_pool("gpus", "True", "Available", DEVICES)
    await eventually(lambda: users.get("isess", "first"), is_ready)
    assert [*await ended_load(users)] == ["200"], "the session that has its device loses nothing"

    users("delete", "isess", "--all", "--timeout=300s")
    users("delete", "gpool", "gpus", "others", "--timeout=120s")
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        await eventually(lambda kind=kind: users("get", kind, "-o", "name"), lambda left: left == "", PATIENCE_SECONDS)


async def test_slices_of_a_gpu_exclude_each_other(devices: Devices) -> None:
    users, driver = devices.users, devices.driver
    driver.create_class()
    driver.start(NODE, 0)
    driver.publish_gpu(NODE)
    users.apply(driver.pool("small", profile="1g"), driver.pool("large", profile="3g"))
    await devices.until_pool("small", "True", "Available", 7)
    await devices.until_pool("large", "True", "Available", 2)

    devices.apply_session("first", "large")
    await devices.watch.until_serving("first", pods=1 + 1)
    assert (await devices.device(await devices.pod(WORKERS, "large"))).startswith("gpu-0-3g-")

    # Of the eight memory slices four are left. Three possible small slices stay without memory.
    driver.take(4, f'device.attributes["{driver.name}"].profile == "1g"')
    devices.apply_session("second", "small")
    await devices.until_told("second", "Profiled", partial(devices.profiler, "small"), "not allocated")
    driver.give_back()
    assert (await devices.device(await devices.pod(PROFILERS, "small"))).startswith("gpu-0-1g-")
    await eventually(lambda: reason(users.get("isess", "second"), "Profiled"), lambda found: found[0] == "True")
