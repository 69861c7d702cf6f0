"""Devices of DRA drivers as they are offered, and the ResourceClaimTemplates with which pods claim them."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from partita_api.digests import canonical_json
from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool
from partita_api.meta import API_VERSION, POOL_LABEL
from partita_api.pool.devices import Devices
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import DeviceClassResource, ResourceClaimTemplateResource, ResourceSliceResource
from partita_operator.kube.retries import retried
from partita_operator.ports import EngineUnavailableError
from partita_operator.reconcile.world import DeviceOffer, OfferedDevice

CLAIM: Final = "accelerator"
"""Name of the claim in a pod, and of its only request."""
_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


async def device_offer(client: KubernetesClient, claimed: Devices) -> DeviceOffer:
    """The devices that the pool's driver offers on nodes. Raises ApiServerUnavailableError."""
    driver, device_class = f"spec.driver={claimed.driver_name}", claimed.device_class_name
    try:
        slices = await retried(lambda: client.list(ResourceSliceResource, fields=driver))
    except ApiError as error:
        if is_missing(error):
            return DeviceOffer(problem="The cluster has no resource.k8s.io/v1. Upgrade it to Kubernetes 1.34 or newer.")
        return DeviceOffer(problem=f"Partita may not list ResourceSlices: {error}. Upgrade its Helm release.")
    try:
        await retried(lambda: client.get(DeviceClassResource, device_class))
    except ApiError as error:
        if is_missing(error):
            return DeviceOffer(has_class=False)
        return DeviceOffer(problem=f"Partita may not read DeviceClasses: {error}. Upgrade its Helm release.")
    return read_offer(slices)


def read_offer(slices: Iterable[Document]) -> DeviceOffer:
    """The devices of a driver's ResourceSlices; those of older generations are about to be removed."""
    specs = [raw["spec"] for raw in slices]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(pool["generation"], newest.get(pool["name"], 0))
    current = [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]
    return DeviceOffer(
        devices=tuple(_device(spec, device) for spec in current for device in spec.get("devices") or ()),
        counters={
            (spec["pool"]["name"], shared["name"], counter): Quantity(amount["value"]).value
            for spec in current
            for shared in spec.get("sharedCounters") or ()
            for counter, amount in shared["counters"].items()
        },
    )


def _device(spec: Document, device: Document) -> OfferedDevice:
    attributes = {}
    for name, value in (device.get("attributes") or {}).items():
        domain, _, local = name.rpartition("/")
        if "string" in value:
            attributes[domain or spec["driver"], local] = value["string"]
    return OfferedDevice(
        name=device["name"],
        node=spec.get("nodeName") or device.get("nodeName") or "",
        attributes=attributes,
        counters={
            (spec["pool"]["name"], taken["counterSet"], counter): Quantity(amount["value"]).value
            for taken in device.get("consumesCounters") or ()
            for counter, amount in taken["counters"].items()
        },
        tainted=any(taint["effect"] in _KEEPS_AWAY for taint in device.get("taints") or ()),
    )


def claim_template(pool: GPUPool, devices: Devices, namespace: str) -> dict[str, Any]:
    """The template of the pool's claims in a namespace.

    Its spec cannot change, so that its name has a digest of it. It is deleted with the pool.
    """
    exactly = {"deviceClassName": devices.device_class_name, "selectors": [{"cel": {"expression": devices.expression}}]}
    return {
        "metadata": {
            "name": claim_template_name(pool, devices),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "partita", POOL_LABEL: pool.metadata.name},
            "ownerReferences": [
                {"apiVersion": API_VERSION, "kind": pool.kind, "name": pool.metadata.name, "uid": pool.metadata.uid}
            ],
        },
        "spec": {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}}},
    }


def claim_template_name(pool: GPUPool, devices: Devices) -> str:
    """The name of the template, which pods refer to."""
    return f"partita-{pool.metadata.name}-{sha256(canonical_json(devices).encode()).hexdigest()[:8]}"


class DeviceClaims:
    """Offers claims to the pods of namespaces."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def offer(self, namespace: str, pool: GPUPool) -> None:
        """Make sure that the namespace has the template of the pool's claims, if the pool has devices.

        Raises EngineUnavailableError if the API server refuses, and ApiServerUnavailableError if it is away.
        """
        devices = pool.spec.devices
        if devices is None:
            return
        manifest = claim_template(pool, devices, namespace)
        try:
            await retried(lambda: self._client.apply(ResourceClaimTemplateResource, manifest, force=True))
        except ApiError as error:
            name = manifest["metadata"]["name"]
            raise EngineUnavailableError(
                f"Partita may not apply ResourceClaimTemplate {namespace}/{name}: {error}. Use Kubernetes 1.34 or "
                "newer, and upgrade the Helm release, which adds the rights."
            ) from error
