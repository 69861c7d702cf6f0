"""Pools of devices by Dynamic Resource Allocation: what counts, and what their conditions say."""

from dataclasses import replace
from decimal import Decimal

import pytest
from tests.operator.reconcile.pool.test_pools import status_of, undeclared

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.pool.devices import Devices
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.pool.gpu_labels import DRAINING
from partita_operator.reconcile.world import DeviceOffer, Node, OfferedDevice, PoolWorld
from partita_operator.settings.model import OperatorSettings

DRIVER = "gpu.nvidia.com"
NODES = (Node("a", True, {}), Node("b", True, {}), Node("away", False, {}), Node("cut", True, {}, {DRAINING: "x"}))
A100 = {(DRIVER, "type"): "gpu", (DRIVER, "productName"): "NVIDIA A100"}


def gpu(name: str, node: str = "a") -> OfferedDevice:
    return OfferedDevice(name, node, A100)


def slices(gpu: str, profile: str, starts: range, length: int) -> list[OfferedDevice]:
    """The places of a MIG profile on a GPU, each with the slices of memory that it takes."""
    attributes = {(DRIVER, "type"): "mig", (DRIVER, "profile"): profile}
    return [
        OfferedDevice(
            f"{gpu}-{profile}-{start}",
            "a",
            attributes,
            {("a", gpu, f"memory-slice-{at}"): Decimal(1) for at in range(start, start + length)},
        )
        for start in starts
    ]


def counters(*gpus: str) -> dict[tuple[str, str, str], Decimal]:
    return {("a", gpu, f"memory-slice-{at}"): Decimal(1) for gpu in gpus for at in range(8)}


SLICES = (*slices("gpu-0", "1g.10gb", range(7), 1), *slices("gpu-0", "3g.40gb", range(0, 5, 4), 4))
LARGE = slices("gpu-0", "2g.20gb", range(6), 2)
FOUR = (gpu("0"), gpu("1"), gpu("2", "b"), replace(gpu("3", "b"), tainted=True), gpu("4", "away"), gpu("5", "cut"))


def devices_pool(count: int | None = None, **attributes: str) -> GPUPool:
    built = undeclared(capacity=7)
    claimed = Devices(device_class_name="a-class", driver=DRIVER, attributes=attributes)
    return built.model_copy(update={"spec": built.spec.model_copy(update={"devices": claimed, "count": count})})


def counted(pool: GPUPool, offer: DeviceOffer) -> GPUPoolStatus:
    return status_of(PoolWorld(pool, Cluster({"fast": pool}), OperatorSettings(), NODES, offer=offer))


@pytest.mark.parametrize(
    ("pool", "offer", "want", "want_nodes"),
    [
        pytest.param(devices_pool(), DeviceOffer(devices=FOUR), 3, 2, id="usable devices of ready nodes"),
        pytest.param(devices_pool(productName="NVIDIA A100"), DeviceOffer(devices=FOUR), 3, 2, id="by an attribute"),
        pytest.param(
            devices_pool(**{f"{DRIVER}/type": "gpu"}), DeviceOffer(devices=FOUR), 3, 2, id="by an attribute with domain"
        ),
        pytest.param(devices_pool(count=1), DeviceOffer(devices=FOUR), 1, 3, id="declared before devices"),
        pytest.param(
            devices_pool(profile="1g.10gb"), DeviceOffer(devices=SLICES, counters=counters("gpu-0")), 7, 1, id="slices"
        ),
        pytest.param(
            devices_pool(profile="2g.20gb"),
            DeviceOffer(devices=tuple(LARGE), counters=counters("gpu-0")),
            3,
            1,
            id="slices that exclude each other",
        ),
        pytest.param(
            devices_pool(type="mig"),
            DeviceOffer(devices=SLICES, counters=counters("gpu-0")),
            7,
            1,
            id="slices of any profile",
        ),
    ],
)
def test_the_devices_that_can_be_claimed_at_the_same_time_count(
    pool: GPUPool, offer: DeviceOffer, want: int, want_nodes: int
) -> None:
    status = counted(pool, offer)

    assert (status.capacity, status.nodes) == (want, want_nodes)
    assert [(c.type, c.reason) for c in status.conditions if c.type == "Ready"] == [("Ready", "Available")]


@pytest.mark.parametrize(
    ("pool", "offer", "want_capacity", "want_reason", "want_words"),
    [
        pytest.param(
            devices_pool(),
            DeviceOffer(has_class=False),
            0,
            "DeviceClassMissing",
            "no DeviceClass a-class",
            id="no class",
        ),
        pytest.param(
            devices_pool(count=4),
            DeviceOffer(has_class=False),
            0,
            "DeviceClassMissing",
            "kubectl get deviceclasses",
            id="no class, however many are declared",
        ),
        pytest.param(
            devices_pool(), DeviceOffer(problem="No."), 7, "DevicesUnreadable", "No.", id="unreadable: the number stays"
        ),
        pytest.param(
            devices_pool(), DeviceOffer(), 0, "NoAccelerators", f"driver {DRIVER} offers 0 devices", id="no devices"
        ),
        pytest.param(
            devices_pool(productName="H100"),
            DeviceOffer(devices=FOUR),
            0,
            "NoAccelerators",
            "offers 6 devices",
            id="other products only",
        ),
        pytest.param(devices_pool(count=0), DeviceOffer(devices=FOUR), 0, "NoCount", "count is 0", id="declared 0"),
    ],
)
def test_a_pool_without_usable_devices_says_why(
    pool: GPUPool, offer: DeviceOffer, want_capacity: int, want_reason: str, want_words: str
) -> None:
    status = counted(pool, offer)

    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (status.capacity, ready.status, ready.reason) == (want_capacity, "False", want_reason)
    assert want_words in ready.message
