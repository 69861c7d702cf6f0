"""Pools of devices on a real API server: ResourceSlices as a DRA driver publishes them, and templates of claims."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.docs.pages import pasted
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, condition, eventually, pool, reason

from partita_api.gpupool import GPUPool
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.devices import DeviceClaims

pytestmark = pytest.mark.apiserver


class Driver:
    """A DRA driver of one node, as far as the API server sees it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.name = f"gpu-{uuid4().hex[:6]}.example.com"

    def create_class(self) -> None:
        self._apply("DeviceClass", {"selectors": [{"cel": {"expression": f'device.driver == "{self.name}"'}}]})

    def publish(self, generation: int, *products: str) -> None:
        devices = [
            {"name": f"gpu-{at}", "attributes": {"product": {"string": product}, "index": {"int": at}}}
            for at, product in enumerate(products)
        ]
        pool = {"name": self.name, "generation": generation, "resourceSliceCount": 1}
        self._apply("ResourceSlice", {"driver": self.name, "nodeName": self.name, "pool": pool, "devices": devices})

    def create_node(self) -> None:
        self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": self.meta}))
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.kubectl("patch", "node", self.name, "--subresource=status", "--type=merge", "-p", json.dumps(ready))

    def delete(self) -> None:
        for kind in ("deviceclass", "resourceslice", "node"):
            self.kubectl("delete", kind, self.name, "--ignore-not-found")

    @property
    def meta(self) -> Json:
        return {"name": self.name}

    def _apply(self, kind: str, spec: Json) -> None:
        document = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": self.meta, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(document))


@pytest.fixture
def driver(namespace: Kubectl) -> Iterator[Driver]:
    made = Driver(namespace)
    yield made
    made.delete()


def devices_pool(driver: Driver, **attributes: str) -> Json:
    made = pool(f"devices-{uuid4().hex[:6]}", count=None)
    devices: dict[str, Any] = {"deviceClassName": driver.name, "attributes": attributes}
    return {**made, "spec": {"pricePerHour": "1", "devices": devices}}


async def test_a_pool_follows_what_its_driver_offers(operators: Operators, namespace: Kubectl, driver: Driver) -> None:
    manifest = devices_pool(driver, product="A100")
    name = manifest["metadata"]["name"]

    def capacity() -> int | None:
        return ((namespace.get("gpupool", name) or {}).get("status") or {}).get("capacity")

    def paste_the_proposed_command() -> None:
        (command,) = re.findall(r"kubectl get [^.]+", condition(namespace.get("gpupool", name), "Ready")["message"])
        namespace.paste(command)

    async with operators.running():
        namespace.apply(manifest)
        await eventually(lambda: reason(namespace.get("gpupool", name)), lambda found: found[1] == "DeviceClassMissing")
        paste_the_proposed_command()

        driver.create_class()
        driver.create_node()
        await eventually(lambda: reason(namespace.get("gpupool", name)), lambda found: found[1] == "NoAccelerators")
        paste_the_proposed_command()

        driver.publish(1, "A100", "A100", "T4")
        await eventually(capacity, lambda found: found == 2)

        (commands,) = pasted("docs/tasks/dra.md")
        namespace.paste(commands)

        driver.publish(2, "A100", "T4")
        await eventually(capacity, lambda found: found == 1)
        assert reason(namespace.get("gpupool", name)) == ("True", "Available")


async def test_the_api_server_accepts_the_template_of_the_claims(namespace: Kubectl, driver: Driver) -> None:
    namespace.apply(devices_pool(driver, **{"product": 'an "A100"', "other.example.com/rack": "r1"}))
    (raw,) = [found for found in namespace.list("gpupools") if found["spec"].get("devices")]
    made = GPUPool.model_validate(raw)
    async with KubernetesClient(await load_config(namespace.kubeconfig)) as client:
        claims = DeviceClaims(client)

        await claims.offer(namespace.namespace, made)
        (first,) = namespace.list("resourceclaimtemplates")
        await claims.offer(namespace.namespace, made)

    (second,) = namespace.list("resourceclaimtemplates")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    (request,) = first["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == driver.name
    assert request["exactly"]["allocationMode"] == "ExactCount"
