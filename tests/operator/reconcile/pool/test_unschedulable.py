"""Nodes that take no new pods: which of their accelerators count, and what the pool's status says of them."""

from dataclasses import dataclass, field, replace
from typing import Self

import pytest
from tests.builders import PoolBuilder, pool, session
from tests.operator.reconcile.elastic_cluster import FAST, GPU, fast, message, provisioned, state
from tests.operator.reconcile.pool.test_devices import devices_pool, gpu
from tests.operator.reconcile.pool.test_pools import status_of
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.pool.unschedulable import UnschedulableStatus
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.world import DeviceOffer, Node, PoolWorld
from partita_operator.settings.model import OperatorSettings

NOTICE = "taint karpenter.sh/disrupted"
COUNTED = pool("fast").counted()


@dataclass
class Nodes:
    """A simulated cluster with one pool, and the nodes of the pool by name."""

    made: SimulatedCluster
    found: dict[str, Node] = field(default_factory=dict)

    @classmethod
    def of(cls, *rates: int, fast: PoolBuilder = COUNTED, **units: int) -> Self:
        """A pool whose nodes have so many accelerators, and sessions with so many requests/s: 100 for each of them."""
        nodes = cls(SimulatedCluster(), {name: Node(name, True, {GPU: count}) for name, count in units.items()})
        sessions = [session(f"s{at}").model("detector").rate(rate).build() for at, rate in enumerate(rates)]
        nodes.made.add(fast.build(), *sessions)
        return nodes.after(20)

    def change(self, name: str, **fields: bool | str) -> Self:
        self.found[name] = replace(self.found[name], **fields)  # type: ignore[arg-type]
        return self

    def gone(self, name: str) -> Self:
        del self.found[name]
        return self

    def come(self, name: str, units: int) -> Self:
        self.found[name] = Node(name, True, {GPU: units})
        return self

    def after(self, seconds: float) -> Self:
        self.made.nodes["fast"] = tuple(self.found.values())
        self.made.run(seconds)
        return self

    @property
    def status(self) -> GPUPoolStatus:
        return fast(self.made).status

    @property
    def cordoned_in_use(self) -> int:
        assert self.status.unschedulable is not None
        return self.status.unschedulable.cordoned_in_use

    def rate(self, session_number: int, rate: int) -> Self:
        self.made.add(session(f"s{session_number}").model("detector").rate(rate).build())
        return self

    def assert_at_rest(self) -> None:
        """The operator writes nothing as long as nothing changes."""
        before = self.made.writes
        self.after(120)
        assert self.made.writes == before


@pytest.mark.parametrize(
    ("departure", "want_words"),
    [
        pytest.param(NOTICE, "(node b has taint karpenter.sh/disrupted)", id="a taint"),
        pytest.param("a deletion timestamp", "(node b has a deletion timestamp)", id="a deletion"),
    ],
)
def test_accelerators_of_a_departing_node_do_not_count(departure: str, want_words: str) -> None:
    nodes = Nodes.of(a=4, b=2).change("b", departure=departure).after(2)

    assert nodes.status.capacity == 4
    assert nodes.status.unschedulable == UnschedulableStatus(departing=2, departing_nodes=("b",))
    assert message(nodes.made, "Ready") == (
        f"Partita may use 4 accelerators. Not counted: 2 on departing nodes {want_words}."
    )
    nodes.assert_at_rest()

    assert nodes.change("b", departure="").after(2).status.unschedulable is None
    assert nodes.status.capacity == 6


def test_a_cordoned_departing_node_departs() -> None:
    nodes = Nodes.of(100, a=2, b=2).change("b", departure=NOTICE, cordoned=True).after(2)

    assert nodes.status.unschedulable == UnschedulableStatus(departing=2, departing_nodes=("b",))


def test_a_pool_whose_nodes_all_depart_says_so() -> None:
    nodes = Nodes.of(a=4, b=2).change("a", departure=NOTICE).change("b", departure=NOTICE).after(2)

    assert nodes.status.capacity == 0
    assert message(nodes.made, "Ready") == f"Not counted: 6 on departing nodes (node a has {NOTICE})."
    (ready,) = [c for c in nodes.status.conditions if c.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "NoAccelerators")


@pytest.mark.parametrize(
    ("rates", "want_in_use", "want_capacity"),
    [
        pytest.param((), 0, 4, id="no session"),
        pytest.param((400,), 0, 4, id="the other nodes have enough"),
        pytest.param((500,), 1, 5, id="one is in use"),
        pytest.param((300, 300), 2, 6, id="all are in use"),
    ],
)
def test_accelerators_of_a_cordoned_node_count_as_far_as_plans_use_them(
    rates: tuple[int, ...], want_in_use: int, want_capacity: int
) -> None:
    nodes = Nodes.of(*rates, a=4, b=2).change("b", cordoned=True).after(5)

    assert nodes.status.unschedulable == UnschedulableStatus(
        cordoned=2, cordoned_nodes=("b",), cordoned_in_use=want_in_use
    )
    assert nodes.status.capacity == want_capacity
    idle = f" Not counted: {2 - want_in_use} on cordoned nodes." if want_in_use < 2 else ""
    assert message(nodes.made, "Ready") == f"Partita may use {want_capacity} accelerators.{idle}"
    assert all(nodes.made.condition(f"s{at}", "Ready") == ("True", "Serving") for at in range(len(rates)))
    nodes.assert_at_rest()

    assert nodes.change("b", cordoned=False).after(5).status.capacity == 6
    assert nodes.status.unschedulable is None


def test_a_plan_that_needs_less_releases_a_cordoned_node_for_good() -> None:
    nodes = Nodes.of(600, a=4, b=2).change("b", cordoned=True).after(5)
    assert nodes.cordoned_in_use == 2

    assert nodes.rate(0, 500).after(20).cordoned_in_use == 1
    nodes.rate(0, 600).after(20)
    assert nodes.cordoned_in_use == 1
    assert nodes.made.condition("s0", "Planned") == ("False", "InsufficientCapacity")

    nodes.change("b", cordoned=False).after(20)
    assert nodes.made.condition("s0", "Ready") == ("True", "Serving")
    assert nodes.status.allocated == "6"


def test_the_loss_of_another_node_brings_no_accelerators_of_a_cordoned_one_back() -> None:
    nodes = Nodes.of(400, a=2, b=2, c=2).change("c", cordoned=True).after(5)
    assert (nodes.cordoned_in_use, nodes.status.capacity) == (0, 4)

    assert nodes.change("b", departure=NOTICE).after(5).status.capacity == 2
    assert message(nodes.made, "Ready").endswith(
        f"Not counted: 2 on departing nodes (node b has {NOTICE}) and 2 on cordoned nodes."
    )
    nodes.assert_at_rest()


def test_a_second_cordoned_node_counts_as_far_as_it_is_in_use() -> None:
    nodes = Nodes.of(500, a=2, b=2, c=2).change("c", cordoned=True).after(5)
    assert nodes.cordoned_in_use == 1

    assert nodes.change("b", cordoned=True).after(5).cordoned_in_use == 3
    assert nodes.status.capacity == 5
    nodes.assert_at_rest()


def test_a_restarted_operator_finds_the_same() -> None:
    nodes = Nodes.of(500, a=4, b=2).change("b", cordoned=True).after(5)
    before = nodes.made.outcome()
    nodes.made.restart()

    assert nodes.after(20).made.outcome() == before


def test_a_declared_count_is_what_it_says() -> None:
    nodes = Nodes.of(300, fast=pool("fast").gpus(3), a=2, b=2)
    nodes.change("a", departure=NOTICE).change("b", cordoned=True).after(5)

    assert (nodes.status.capacity, nodes.status.unschedulable) == (3, None)


B = Node("b", True, {})


@pytest.mark.parametrize(
    ("node_b", "want", "want_words"),
    [
        pytest.param(B, 3, "", id="it takes pods"),
        pytest.param(replace(B, departure=NOTICE), 2, f"1 on departing nodes (node b has {NOTICE})", id="it departs"),
        pytest.param(replace(B, cordoned=True), 2, "1 on cordoned nodes", id="it is cordoned"),
    ],
)
def test_devices_of_unschedulable_nodes_do_not_count(node_b: Node, want: int, want_words: str) -> None:
    status = of_devices(devices_pool(), node_b)

    (ready,) = [c for c in status.conditions if c.type == "Ready"]
    assert status.capacity == want
    assert (status.unschedulable is not None) == bool(want_words)
    assert want_words in ready.message


def test_devices_that_cannot_be_read_change_nothing() -> None:
    known, departing = devices_pool(), replace(B, departure=NOTICE)
    counted = known.model_copy(update={"status": of_devices(known, departing)})

    status = of_devices(counted, departing, problem="The operator may not list them.")

    assert (status.capacity, status.unschedulable) == (2, counted.status.unschedulable)


def of_devices(pool: GPUPool, node_b: Node, problem: str = "") -> GPUPoolStatus:
    """The status of a pool with two devices on node a and one on node b."""
    offer = DeviceOffer(devices=(gpu("0"), gpu("1"), gpu("2", "b")), problem=problem)
    nodes = (Node("a", True, {}), node_b)
    return status_of(PoolWorld(pool, Cluster({"fast": pool}), OperatorSettings(), nodes, offer=offer))


def test_an_elastic_pool_requests_nodes_in_place_of_departing_ones() -> None:
    nodes = Nodes.of(400, fast=FAST, a=2, b=2)
    assert provisioned(nodes.made) == ("True", "Provisioned")

    nodes.change("b", departure=NOTICE).after(5)

    assert (nodes.status.capacity, state(nodes.made).present, state(nodes.made).pending) == (8, 2, 2)
    assert provisioned(nodes.made) == ("False", "WaitingForNodes")
    assert "2 of 4 accelerators that plans use are not present" in message(nodes.made)
    assert f"Not counted: 2 on departing nodes (node b has {NOTICE})." in message(nodes.made)
    assert message(nodes.made, "Ready") == (
        "Partita may use 8 accelerators, of which 2 are present. "
        f"Not counted: 2 on departing nodes (node b has {NOTICE})."
    )
    assert nodes.made.engine.applied["default/s0"].departing_nodes == {"b"}

    assert provisioned(nodes.come("c", 2).after(5).made) == ("True", "Provisioned")
    assert nodes.gone("b").after(5).status.unschedulable is None
    assert nodes.made.engine.applied["default/s0"].departing_nodes == frozenset()
    assert nodes.made.condition("s0", "Ready") == ("True", "Serving")


def test_an_elastic_pool_does_without_departed_nodes_if_none_comes() -> None:
    nodes = Nodes.of(400, fast=FAST, a=2, b=2).change("b", departure=NOTICE).after(5).gone("b").after(120)

    assert provisioned(nodes.made) == ("False", "ProvisioningTimedOut")
    assert nodes.status.capacity == 2


def test_an_elastic_pool_keeps_cordoned_accelerators_that_are_in_use() -> None:
    nodes = Nodes.of(300, fast=FAST, a=2, b=2).change("b", cordoned=True).after(5)

    assert (state(nodes.made).present, nodes.cordoned_in_use) == (3, 1)
    assert provisioned(nodes.made) == ("True", "Provisioned")
    nodes.assert_at_rest()

    nodes.rate(0, 500).after(5)
    assert (state(nodes.made).present, state(nodes.made).pending) == (3, 2)
