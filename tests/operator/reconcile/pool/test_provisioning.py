"""Elastic pools: plans use absent accelerators, wait for their nodes, and do without them if none come."""

import pytest
from tests.builders import pool
from tests.operator.doubles import signals, with_stages
from tests.operator.reconcile.elastic_cluster import (
    DETECTOR,
    FAST,
    come,
    elastic_cluster,
    fast,
    message,
    nodes,
    provisioned,
    state,
)
from tests.operator.reconcile.simulated import EPOCH, SimulatedCluster

from partita_api.gpupool import GPUPoolStatus
from partita_api.inferencesession import Rate, RateSource
from partita_api.meta import FINALIZER
from partita_api.pool.devices import Devices
from partita_api.pool.elastic import ElasticStatus
from partita_operator.kube.resources import read_pool
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.world import DeviceOffer, PoolWorld
from partita_operator.settings.model import OperatorSettings

OBSERVED = DETECTOR.with_spec(rate=Rate(requests_per_second=200, source=RateSource.OBSERVED))


def restarted(made: SimulatedCluster) -> SimulatedCluster:
    made.restart()
    return made


@pytest.mark.parametrize(
    ("present", "want"),
    [
        pytest.param(0, (8, 0), id="no node"),
        pytest.param(3, (8, 3), id="some nodes"),
        pytest.param(9, (9, 9), id="more than maxCount"),
    ],
)
def test_plans_may_use_present_and_absent_accelerators(present: int, want: tuple[int, int]) -> None:
    made = SimulatedCluster(nodes={"fast": nodes(present)})
    made.add(FAST.build())
    made.run(2)
    status = fast(made).status
    assert (status.capacity, state(made).present) == want
    assert (status.free, state(made).max_count) == (str(want[0]), 8)
    assert f"Partita may use {want[0]} accelerators, of which {want[1]} are present." == message(made, "Ready")
    assert provisioned(made) == ("True", "Provisioned")


def test_a_plan_brings_nodes_and_serves_once_they_are_there() -> None:
    made = elastic_cluster(0)
    assert (state(made).present, state(made).pending) == (0, 2)
    assert provisioned(made) == ("False", "WaitingForNodes")
    assert "2 of 2 accelerators that plans use are not present" in message(made)
    assert made.condition("traffic", "Ready") == ("False", "WaitingForNodes")
    assert made.condition("traffic", "RolledOut") == ("False", "WaitingForNodes")
    assert made.engine.applied["default/traffic"].targets[0].replicas == 2

    came = state(restarted(made)).pending_since
    made.run(40)
    come(made, 2)
    made.run(3)
    assert provisioned(made) == ("True", "Provisioned")
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert (state(made).pending, state(made).pending_since) == (0, None)
    assert came is not None
    assert 40 <= (state(made).measured_provision_seconds or 0) <= 60


def test_while_nodes_come_the_current_plan_serves() -> None:
    made = elastic_cluster(2)
    before = made.engine.applied["default/traffic"].plan.metadata.name
    made.engine.most_ready = 0
    made.add(DETECTOR.rate(500).build())
    made.run(10)
    assert made.condition("traffic", "RolledOut") == ("False", "WaitingForNodes")
    (rolled_out,) = [c for c in made.session("traffic").status.conditions if c.type == "RolledOut"]
    assert "3 accelerators of pool fast are not present" in rolled_out.message
    assert made.session("traffic").status.pending_plan != before


def test_nodes_that_come_one_after_the_other_extend_the_deadline() -> None:
    made = elastic_cluster(0, DETECTOR.rate(300))
    for present in (1, 2):
        made.run(80)
        come(made, present)
    made.run(80)
    assert provisioned(made) == ("False", "WaitingForNodes")
    assert state(made).pending == 1
    made.run(40)
    assert provisioned(made) == ("False", "ProvisioningTimedOut")


def test_nodes_that_never_come_are_named_and_plans_do_without_them() -> None:
    made = elastic_cluster(2)
    serving = made.session("traffic").status.current_plan
    made.add(DETECTOR.rate(500).build())
    made.engine.most_ready = 0  # of the new plan
    made.run(50)
    assert provisioned(made) == ("False", "WaitingForNodes")
    made.run(80)
    assert provisioned(made) == ("False", "ProvisioningTimedOut")
    assert "No node came for" in message(made)
    assert "partita.dev/pool=fast" in message(made)
    assert fast(made).status.capacity == 2
    assert made.condition("traffic", "Ready") == ("False", "InsufficientCapacity")
    (planned,) = [c for c in made.session("traffic").status.conditions if c.type == "Planned"]
    assert "`kubectl describe gpool fast`" in planned.message

    until = state(restarted(made)).back_off_until
    made.run(30)
    assert serving is not None
    assert made.engine.applied["default/traffic"].plan.metadata.name == serving.name
    assert state(made).back_off_until == until

    made.run(300)
    assert provisioned(made) == ("False", "WaitingForNodes")
    assert fast(made).status.capacity == 8
    assert state(made).pending == 3


def test_after_the_deadline_a_session_is_planned_with_present_accelerators() -> None:
    made = elastic_cluster(2)
    made.add(pool("slow").gpus(8).build())
    made.run(5)
    made.add(DETECTOR.rate(500).build())
    made.engine.most_ready = 0  # of the new plan
    made.run(60)
    assert (provisioned(made), state(made).pending) == (("False", "WaitingForNodes"), 3)
    assert made.engine.applied["default/traffic"].plan.spec.gpus() == {"fast": 5}

    made.engine.most_ready = 8
    made.run(80)
    assert made.engine.applied["default/traffic"].plan.spec.gpus() == {"slow": 5}
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert state(made).pending == 0


def test_replicas_of_a_new_session_go_if_their_nodes_never_come() -> None:
    made = elastic_cluster(1, seconds=1)
    made.engine.most_ready = 0
    made.run(60)
    assert made.engine.applied["default/traffic"].targets[0].replicas == 2
    assert made.condition("traffic", "Ready") == ("False", "WaitingForNodes")

    made.run(60)
    assert made.engine.applied == {}
    assert provisioned(made) == ("False", "ProvisioningTimedOut")
    assert made.condition("traffic", "Ready") == ("False", "InsufficientCapacity")

    made.run(320)
    assert made.engine.applied["default/traffic"].targets[0].replicas == 2
    come(made, 2)
    made.run(5)
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_a_node_that_comes_late_ends_the_pause() -> None:
    made = elastic_cluster(0)
    made.run(150)
    assert (fast(made).status.capacity, provisioned(made)) == (0, ("False", "ProvisioningTimedOut"))
    ready = next(c for c in fast(made).status.conditions if c.type == "Ready")
    assert (str(ready.status), ready.reason) == ("False", "ProvisioningTimedOut")
    come(made, 1)
    made.run(1)
    assert fast(made).status.capacity == 8
    come(made, 2)
    made.run(20)
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_without_a_back_off_plans_wait_on() -> None:
    made = elastic_cluster(0, fast=pool("fast").elastic(8, provision_timeout_seconds=100, back_off_seconds=0))
    made.run(200)
    assert provisioned(made) == ("False", "ProvisioningTimedOut")
    assert "Plans wait on" in message(made)
    assert fast(made).status.capacity == 8
    come(made, 2)
    made.run(3)
    assert provisioned(made) == ("True", "Provisioned")


def test_a_plan_that_waits_for_approval_requests_no_node() -> None:
    manual = DETECTOR.planner(approval="Manual")
    made = elastic_cluster(0, manual)
    assert made.condition("traffic", "Ready") == ("False", "AwaitingApproval")
    made.run(200)
    assert (state(made).pending, provisioned(made)) == (0, ("True", "Provisioned"))


def test_a_clock_that_jumped_back_does_not_extend_a_pause() -> None:
    built = FAST.build()
    before = ElasticStatus(present=2, back_off_until="2027-01-01T00:00:00Z", keep_until="2027-01-01T00:00:00Z")
    meta = built.metadata.model_copy(update={"finalizers": (FINALIZER,), "generation": 1})
    known = built.model_copy(update={"metadata": meta, "status": GPUPoolStatus(capacity=2, elastic=before)})
    world = PoolWorld(known, Cluster({"fast": known}), OperatorSettings(), nodes(2))
    after = reconcile_pool(world, EPOCH).status.elastic
    assert after is not None
    assert after.back_off_until == "2026-01-01T00:05:00Z"
    assert after.keep_until is None


@pytest.mark.parametrize("present", [-1, -(2**63) + 1, 10**12 + 1, 2**63 - 1])
def test_an_impossible_status_is_forgotten(present: int) -> None:
    meta = {"name": "fast", "finalizers": [FINALIZER]}
    known, _ = read_pool({"metadata": meta, "spec": {}, "status": {"elastic": {"present": present}}})
    assert reconcile_pool(PoolWorld(known, Cluster({"fast": known}), OperatorSettings()), EPOCH).status.capacity == 0


def test_devices_that_cannot_be_read_bring_no_node() -> None:
    built = FAST.with_spec(devices=Devices(device_class_name="gpu.nvidia.com")).build()
    meta = built.metadata.model_copy(update={"finalizers": (FINALIZER,), "generation": 1})
    known = built.model_copy(update={"metadata": meta})

    def status(offer: DeviceOffer) -> tuple[int, str]:
        world = PoolWorld(known, Cluster({"fast": known}), OperatorSettings(), nodes(1), offer=offer)
        found = reconcile_pool(world, EPOCH).status
        return found.capacity, next(c.reason for c in found.conditions if c.type == "Ready")

    assert status(DeviceOffer(has_class=False)) == (0, "DeviceClassMissing")
    assert status(DeviceOffer(problem="The operator may not list them.")) == (0, "DevicesUnreadable")
    assert status(DeviceOffer()) == (8, "Available")


def test_a_pool_that_is_not_elastic_any_more_forgets_what_it_waited_for() -> None:
    made = elastic_cluster(1)
    made.add(pool("fast").gpus(3).build())
    made.run(2)
    assert fast(made).status.elastic is None
    assert not [c for c in fast(made).status.conditions if c.type == "Provisioned"]


def autoscaled(keep_seconds: int) -> SimulatedCluster:
    """A session on two accelerators whose autoscaler has just requested two more."""
    growing = pool("fast").elastic(8, provision_timeout_seconds=100, back_off_seconds=300, keep_seconds=keep_seconds)
    made = elastic_cluster(2, OBSERVED, fast=growing, seconds=60)
    measure(made, bad=0.5, idle=0.0)
    made.run(1)
    assert replicas(made) == 4
    made.engine.reported.clear()
    return made


def replicas(made: SimulatedCluster) -> int:
    (target,) = made.engine.applied["default/traffic"].targets
    return target.replicas


def measure(made: SimulatedCluster, bad: float, idle: float) -> None:
    plan = made.engine.applied["default/traffic"].plan.metadata.name
    stages = {("detector", "p0", 0): (replicas(made), idle, bad)}
    made.engine.reported["default/traffic"] = with_stages(signals(plan, 190, bad, idle), stages)


def test_the_autoscaler_brings_nodes_and_gives_up_replicas_whose_nodes_never_come() -> None:
    made = autoscaled(keep_seconds=0)
    made.run(2)
    assert (state(made).pending, provisioned(made)) == (2, ("False", "WaitingForNodes"))
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.condition("traffic", "RolledOut") == ("False", "WaitingForNodes")
    made.run(120)
    assert provisioned(made) == ("False", "ProvisioningTimedOut")
    assert replicas(made) == 2
    assert state(made).pending == 0
    assert made.condition("traffic", "RolledOut") == ("True", "RolledOut")


@pytest.mark.parametrize(("keep_seconds", "want"), [(0, 1), (600, 4)])
def test_replicas_stay_for_a_time_after_their_nodes_came(keep_seconds: int, want: int) -> None:
    made = autoscaled(keep_seconds)
    made.run(40)
    come(made, 4)
    made.run(35)
    measure(made, bad=0.0, idle=0.99)
    made.run(2)
    assert replicas(made) == want
    assert (state(made).keep_until is not None) == bool(keep_seconds)

    made.run(600)
    assert replicas(made) == 1
    assert state(made).keep_until is None


def test_a_lower_rate_makes_no_smaller_plan_while_nodes_have_just_come() -> None:
    growing = pool("fast").elastic(8, keep_seconds=1000)
    made = elastic_cluster(0, OBSERVED, fast=growing)
    come(made, 2)
    made.run(5)
    made.engine.reported["default/traffic"] = signals(None, 90)
    made.run(500)
    assert made.engine.applied["default/traffic"].plan.spec.gpus() == {"fast": 2}
    made.run(600)
    assert made.engine.applied["default/traffic"].plan.spec.gpus() == {"fast": 1}


@pytest.mark.parametrize(
    ("present", "want"),
    [
        pytest.param(2, "within 300 s", id="the next replica needs a node"),
        pytest.param(8, "within 60 s", id="a present accelerator is free"),
    ],
)
def test_the_look_ahead_covers_the_time_until_a_node_comes(present: int, want: str) -> None:
    growing = pool("fast").elastic(8, provision_seconds=240)
    made = elastic_cluster(present, OBSERVED, fast=growing, seconds=60)
    plan = made.engine.applied["default/traffic"].plan.metadata.name
    for rate in range(100, 196, 4):
        stages = {("detector", "p0", 0): (2, 0.05, 0.0)}
        made.engine.reported["default/traffic"] = with_stages(signals(plan, rate, idle=0.05), stages)
        made.run(4)
        if replicas(made) > 2:
            break
    scaled = [event.message for _, event in made.events if event.reason == "Scaled"]
    assert want in scaled[0]
