"""Pools: their accelerators, the sessions that hold them, and their deletion."""

import pytest
from tests.builders import PoolBuilder, pool, session
from tests.operator.doubles import signals
from tests.operator.reconcile.simulated import EPOCH, SimulatedCluster

from partita_api.gpupool import GPUPool, GPUPoolStatus, Sharing, SharingMode
from partita_api.meta import FINALIZER
from partita_operator.reconcile.actions import AddFinalizer
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.world import Node, PoolWorld
from partita_operator.settings.model import OperatorSettings

GPU = "nvidia.com/gpu"
TWO_NODES = (Node("a", True, {GPU: 4}), Node("b", True, {GPU: 8}))


def undeclared(name: str = "fast", capacity: int = 0) -> GPUPool:
    built = pool(name).with_spec().build()
    meta = built.metadata.model_copy(update={"finalizers": (FINALIZER,), "generation": 1})
    spec = built.spec.model_copy(update={"count": None})
    return built.model_copy(update={"metadata": meta, "spec": spec, "status": GPUPoolStatus(capacity=capacity)})


def status_of(world: PoolWorld) -> GPUPoolStatus:
    return reconcile_pool(world, EPOCH).status


@pytest.mark.parametrize(
    ("nodes", "engine", "declared", "want_capacity", "want_ready"),
    [
        pytest.param(TWO_NODES, None, None, 12, ("True", "Available"), id="nodes"),
        pytest.param(TWO_NODES, {"partita-pool-fast": 3.0}, None, 12, ("True", "Available"), id="nodes before Ray"),
        pytest.param(TWO_NODES, None, 5, 5, ("True", "Available"), id="declared before nodes"),
        pytest.param((), {"partita-pool-fast": 3.0}, None, 3, ("True", "Available"), id="Ray resource"),
        pytest.param((), {"other": 3.0}, None, 0, ("False", "NoNodes"), id="nothing anywhere"),
        pytest.param((Node("a", True, {}),), None, None, 0, ("False", "NoAccelerators"), id="no device plugin"),
        pytest.param(
            (Node("a", False, {GPU: 4}), Node("b", True, {GPU: 8})),
            None,
            None,
            8,
            ("True", "Available"),
            id="one not ready",
        ),
        pytest.param((Node("a", False, {GPU: 4}),), None, None, 0, ("False", "NoAccelerators"), id="none ready"),
        pytest.param((), None, 0, 0, ("False", "NoCount"), id="declared as none"),
        pytest.param((), None, None, 7, ("Unknown", "EngineUnavailable"), id="Ray is away: the last number stays"),
    ],
)
def test_capacity_is_declared_or_counted(
    nodes: tuple[Node, ...],
    engine: dict[str, float] | None,
    declared: int | None,
    want_capacity: int,
    want_ready: tuple[str, str],
) -> None:
    built = undeclared(capacity=7)
    built = built.model_copy(update={"spec": built.spec.model_copy(update={"count": declared})})
    status = status_of(PoolWorld(built, Cluster({"fast": built}), OperatorSettings(), nodes, engine, "no answer"))

    ready = next(c for c in status.conditions if c.type == "Ready")
    assert status.capacity == want_capacity
    assert (str(ready.status), ready.reason) == want_ready
    assert ready.message


H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "4",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/mig.capable": "true",
}


@pytest.mark.parametrize(
    ("mode", "labels", "allocatable", "want_words"),
    [
        pytest.param(SharingMode.WHOLE, {f"{GPU}.sharing-strategy": "none"}, {GPU: 4}, "", id="not shared"),
        pytest.param(
            SharingMode.WHOLE, {f"{GPU}.sharing-strategy": "time-slicing"}, {GPU: 40}, "time-slicing", id="time"
        ),
        pytest.param(SharingMode.MPS, {f"{GPU}.sharing-strategy": "mps"}, {GPU: 16}, "(mps)", id="MPS twice"),
        pytest.param(SharingMode.MPS, {}, {GPU: 4, "nvidia.com/mig-1g.10gb": 7}, "has MIG slices", id="MPS and MIG"),
        pytest.param(SharingMode.WHOLE, {}, {GPU: 4, "nvidia.com/mig-1g.10gb": 7}, "", id="whole GPUs beside slices"),
        pytest.param(SharingMode.WHOLE, {"partita.dev/mig-draining": "x"}, {GPU: 4}, "waits to be cut", id="drained"),
    ],
)
def test_nodes_that_share_gpus_in_another_way_do_not_count(
    mode: SharingMode, labels: dict[str, str], allocatable: dict[str, int], want_words: str
) -> None:
    built = undeclared()
    built = built.model_copy(update={"spec": built.spec.model_copy(update={"sharing": Sharing(mode=mode)})})
    nodes = (Node("a", True, {GPU: 8}), Node("b", True, allocatable, {**H100, **labels}))
    status = status_of(PoolWorld(built, Cluster({"fast": built}), OperatorSettings(), nodes))
    assert status.capacity == (8 if want_words else 12)
    alone = status_of(PoolWorld(built, Cluster({"fast": built}), OperatorSettings(), nodes[1:]))
    ready = next(c for c in alone.conditions if c.type == "Ready")
    assert (alone.capacity == 0) == bool(want_words)
    assert want_words in ready.message


def test_the_status_lists_gpus_of_any_name() -> None:
    built = undeclared()
    future = {**H100, "nvidia.com/gpu.product": "NVIDIA-X999", "nvidia.com/mig.capable": "false"}
    nodes = (
        Node("a", True, {GPU: 4}, H100),
        Node("b", True, {GPU: 8}, {**H100, "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "80000"}),
        Node("c", True, {GPU: 4}, future),
        Node("d", True, {GPU: 4}),
    )
    found = status_of(PoolWorld(built, Cluster({"fast": built}), OperatorSettings(), nodes)).hardware
    assert [(h.product, h.nodes, h.gpus_per_node, h.memory, h.mig_capable) for h in found] == [
        ("NVIDIA-H100-80GB-HBM3", 2, 8, "80000Mi", True),
        ("NVIDIA-X999", 1, 4, "81559Mi", False),
    ]


@pytest.mark.parametrize(
    ("nodes", "engine", "want_words"),
    [
        pytest.param((), {}, ["partita.dev/pool=fast", "partita-pool-fast", "spec.count"], id="no nodes"),
        pytest.param((Node("a", True, {}),), None, ["1 nodes match", GPU, "device plugin"], id="no accelerators"),
    ],
)
def test_a_pool_without_accelerators_names_its_selector_and_resource(
    nodes: tuple[Node, ...], engine: dict[str, float] | None, want_words: list[str]
) -> None:
    built = undeclared()
    status = status_of(PoolWorld(built, Cluster({"fast": built}), OperatorSettings(), nodes, engine))
    message = next(c for c in status.conditions if c.type == "Ready").message
    assert all(words in message for words in want_words)


def test_an_empty_selector_means_the_pools_own_label() -> None:
    assert str(pool("fast").build().node_selector) == "partita.dev/pool=fast"
    assert str(pool("fast").on_nodes({"gpu": "h100"}).build().node_selector) == "gpu=h100"


def test_the_finalizer_comes_first() -> None:
    built = pool("fast").build()
    decision = reconcile_pool(PoolWorld(built, Cluster({"fast": built}), OperatorSettings()), EPOCH)
    assert decision.actions == (AddFinalizer(),)
    assert decision.status == built.status


@pytest.mark.parametrize(
    ("nodes", "want_seconds"),
    [(0, 5), (20, 5), (100, 25), (1000, 60)],
    ids=lambda value: f"{value}",
)
def test_a_pool_of_many_nodes_is_evaluated_less_often(nodes: int, want_seconds: float) -> None:
    built = undeclared()
    guarded = built.model_copy(update={"metadata": built.metadata.model_copy(update={"finalizers": (FINALIZER,)})})
    there = tuple(Node(f"n{i}", True, {GPU: 1}) for i in range(nodes))
    world = PoolWorld(guarded, Cluster({"fast": guarded}), OperatorSettings(), there, {})
    assert reconcile_pool(world, EPOCH).requeue_after == want_seconds


def two_sessions(fast: PoolBuilder) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(fast.build())
    for name, rate in (("traffic", 300), ("game", 100)):
        made.add(session(name).model("detector").rate(rate).build())
        made.run(10)
    return made


def test_the_status_lists_the_sessions_with_their_accelerators() -> None:
    made = two_sessions(pool("fast").gpus(8))
    status = made.pools["fast"].status
    assert (status.capacity, status.allocated, status.free) == (8, "4", "4")
    assert status.sessions == ("default/game", "default/traffic")
    assert status.idle_fraction is None


def test_the_idle_fraction_is_the_mean_over_held_accelerators() -> None:
    made = two_sessions(pool("fast").gpus(8))
    made.engine.reported = {
        "default/traffic": signals(None, 10, idle=0.2),
        "default/game": signals(None, 10, idle=0.6),
    }
    made.run(3)
    assert made.pools["fast"].status.idle_fraction == "0.3"


def test_a_pool_in_use_is_deleted_only_after_its_sessions() -> None:
    made = two_sessions(pool("fast").gpus(8))
    made.delete("fast")
    made.run(5)
    ready = next(c for c in made.pools["fast"].status.conditions if c.type == "Ready")
    assert ready.reason == "InUse"
    assert "default/game, default/traffic" in ready.message

    made.delete("default/traffic")
    made.run(5)
    assert "fast" in made.pools
    made.delete("default/game")
    made.run(5)
    assert made.pools == {}


def test_sessions_move_from_a_deleted_pool_if_possible() -> None:
    made = two_sessions(pool("fast").gpus(8))
    made.add(pool("slow").gpus(8).build())
    made.run(5)
    made.delete("fast")
    made.run(20)
    assert set(made.pools) == {"slow"}
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.pools["slow"].status.allocated == "4"


def test_an_unused_pool_is_deleted_at_once() -> None:
    made = SimulatedCluster()
    made.add(pool("fast").build())
    made.run(2)
    made.delete("fast")
    made.run(1)
    assert made.pools == {}
