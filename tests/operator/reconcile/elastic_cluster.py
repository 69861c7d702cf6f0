"""A simulated cluster with an elastic pool, whose nodes come and go as a test says."""

from tests.builders import PoolBuilder, SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.gpupool import GPUPool
from partita_api.pool.elastic import ElasticStatus
from partita_operator.reconcile.world import Node

GPU = "nvidia.com/gpu"
FAST = pool("fast").elastic(8, provision_timeout_seconds=100, back_off_seconds=300, keep_seconds=0)
DETECTOR = session("traffic").model("detector").rate(200)
"""It needs two accelerators: the planner of the tests plans 100 requests/s for each."""


def nodes(count: int) -> tuple[Node, ...]:
    """Nodes with one accelerator each."""
    return tuple(Node(f"node-{at}", True, {GPU: 1}) for at in range(count))


def elastic_cluster(
    present: int, *sessions: SessionBuilder, fast: PoolBuilder = FAST, seconds: float = 15
) -> SimulatedCluster:
    """A cluster whose pool has so many present accelerators, after some time."""
    made = SimulatedCluster()
    made.add(fast.build(), *(built.build() for built in sessions or (DETECTOR,)))
    come(made, present)
    made.run(seconds)
    return made


def come(made: SimulatedCluster, present: int) -> None:
    """From now on the pool has so many nodes. A stage has at most one replica on each."""
    made.nodes["fast"] = nodes(present)
    made.engine.most_ready = present


def state(made: SimulatedCluster) -> ElasticStatus:
    """What the pool's status says of its nodes."""
    found = fast(made).status.elastic
    assert found is not None
    return found


def fast(made: SimulatedCluster) -> GPUPool:
    """The pool as it is."""
    return made.pools["fast"]


def provisioned(made: SimulatedCluster) -> tuple[str, str]:
    """Status and reason of the pool's condition Provisioned."""
    (found,) = [c for c in fast(made).status.conditions if c.type == "Provisioned"]
    return str(found.status), found.reason


def message(made: SimulatedCluster, type: str = "Provisioned") -> str:
    """The message of a condition of the pool."""
    (found,) = [c for c in fast(made).status.conditions if c.type == type]
    return found.message
