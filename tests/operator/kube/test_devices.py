"""ResourceSlices as DRA drivers publish them, and the templates of claims."""

from typing import Any

import pytest
from tests.builders import pool

from partita_api.meta import POOL_LABEL
from partita_api.pool.devices import Devices
from partita_operator.kube.devices import claim_template, claim_template_name, read_offer

DRIVER = "gpu.nvidia.com"


def published(name: str, *devices: dict[str, Any], generation: int = 1, **spec: Any) -> dict[str, Any]:
    pool = {"name": "node-a", "generation": generation, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "devices": [*devices], **spec}}


def test_attributes_belong_to_the_driver_unless_they_name_a_domain() -> None:
    attributes = {"profile": {"string": "1g.10gb"}, "example.com/rack": {"string": "r1"}, "index": {"int": 3}}

    offer = read_offer([published("a", {"name": "gpu-0", "attributes": attributes}, nodeName="node-a")])

    (device,) = offer.devices
    assert device.node == "node-a"
    assert device.attributes == {(DRIVER, "profile"): "1g.10gb", ("example.com", "rack"): "r1"}


def test_only_the_newest_generation_counts() -> None:
    slices = [published("old", {"name": "gone"}), published("new", {"name": "there"}, generation=2)]

    assert [device.name for device in read_offer(slices).devices] == ["there"]


def test_counters_may_be_in_another_slice_of_the_same_pool() -> None:
    shared = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    takes = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}]}

    offer = read_offer([published("a", sharedCounters=shared), published("b", {"name": "slice", **takes})])

    assert offer.counters == {("node-a", "gpu-0", "memory"): 80 * 2**30}
    assert offer.devices[0].counters == {("node-a", "gpu-0", "memory"): 10 * 2**30}


@pytest.mark.parametrize(("effect", "want"), [("NoSchedule", True), ("NoExecute", True), ("None", False)])
def test_a_taint_keeps_claims_away(effect: str, want: bool) -> None:
    offer = read_offer([published("a", {"name": "gpu-0", "taints": [{"key": "broken", "effect": effect}]})])

    assert offer.devices[0].tainted is want


def test_a_device_may_name_its_node_itself() -> None:
    offer = read_offer([published("a", {"name": "gpu-0", "nodeName": "node-b"}, perDeviceNodeSelection=True)])

    assert offer.devices[0].node == "node-b"


def test_another_selection_is_another_template() -> None:
    a100 = Devices(device_class_name="mig.nvidia.com", driver=DRIVER, attributes={"profile": "1g.10gb"})
    h100 = a100.model_copy(update={"attributes": {"profile": "1g.20gb"}})
    built = pool("slices").build()

    manifest = claim_template(built, a100, "vision")

    assert claim_template_name(built, a100) != claim_template_name(built, h100)
    assert manifest["metadata"]["labels"][POOL_LABEL] == "slices"
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("GPUPool", "slices")
