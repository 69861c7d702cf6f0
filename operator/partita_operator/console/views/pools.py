"""Pools: their accelerators, who holds them, what they cost, and how much of their time is idle."""

from collections.abc import Mapping
from dataclasses import dataclass

from partita_api.conditions import Condition, ConditionStatus, ConditionType
from partita_api.gpupool import GPUPool
from partita_operator.console.drawing.plan_figure import SERIES
from partita_operator.console.reading.snapshot import ClusterSnapshot
from partita_operator.console.views.findings import ConditionRow, Tone, condition_rows
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.findings import condition
from partita_operator.reconcile.reasons import is_problem


@dataclass(frozen=True)
class Holder:
    """A session that holds accelerators of a pool."""

    namespace: str
    name: str
    accelerators: int | None
    """None if the session may not be read."""
    priority: int | None
    readable: bool


@dataclass(frozen=True)
class PoolRow:
    """One pool. None is unknown."""

    name: str
    colour: int
    """Number of the pool's colour, which is the same on all pages."""
    accelerator: str
    """What Kubernetes calls one accelerator."""
    price_per_hour: float
    capacity: int
    present: int
    pending: int
    allocated: float
    free: float
    idle_fraction: float | None
    holders: tuple[Holder, ...]
    status: str
    """The reason of the condition Ready."""
    tone: Tone

    @property
    def used(self) -> float:
        """The share of the capacity that is allocated, at most 1."""
        return min(1.0, self.allocated / self.capacity) if self.capacity else 0.0

    @property
    def cost_per_hour(self) -> float:
        """The price of the accelerators that plans hold."""
        return self.allocated * self.price_per_hour


@dataclass(frozen=True)
class Fact:
    """One more thing to know of an object."""

    name: str
    value: str


@dataclass(frozen=True)
class PoolPage:
    """All about one pool."""

    row: PoolRow
    complaint: str
    """Why its spec cannot be used; empty if it can."""
    facts: tuple[Fact, ...]
    quotas: tuple[tuple[str, int, int], ...]
    """Namespace, the most accelerators that it may hold, and those that it holds."""
    conditions: tuple[ConditionRow, ...]


def pool_rows(cluster: Cluster) -> tuple[PoolRow, ...]:
    """All pools by name."""
    return tuple(_row(cluster, pool, number) for number, (_, pool) in enumerate(sorted(cluster.pools.items())))


def pool_page(snapshot: ClusterSnapshot, name: str) -> PoolPage | None:
    """One pool; None if it is not known."""
    cluster = snapshot.cluster
    pool = cluster.pools.get(name)
    if pool is None:
        return None
    number = sorted(cluster.pools).index(name)
    held = {quota.namespace: quota.allocated for quota in pool.status.quotas}
    return PoolPage(
        row=_row(cluster, pool, number),
        complaint=cluster.unreadable.get(name, ""),
        facts=tuple(_facts(pool)),
        quotas=tuple((quota.namespace, quota.gpus, held.get(quota.namespace, 0)) for quota in pool.spec.quotas),
        conditions=condition_rows(pool.status.conditions, pool.metadata.generation),
    )


def colours(cluster: Cluster) -> tuple[str, ...]:
    """The names of all pools; the place of a pool is its colour on all pages."""
    return tuple(sorted(cluster.pools))


def _row(cluster: Cluster, pool: GPUPool, number: int) -> PoolRow:
    status = pool.status
    ready = condition(status.conditions, ConditionType.READY)
    return PoolRow(
        name=pool.metadata.name,
        colour=number % SERIES,
        accelerator=pool.accelerator_name,
        price_per_hour=float(pool.spec.price_per_hour),
        capacity=status.capacity,
        present=status.present,
        pending=status.pending,
        allocated=float(status.allocated),
        free=float(status.free),
        idle_fraction=None if status.idle_fraction is None else float(status.idle_fraction),
        holders=_holders(cluster, pool),
        status=ready.reason if ready is not None else "not seen by the operator",
        tone=_tone(ready),
    )


def _tone(ready: Condition | None) -> Tone:
    if ready is None:
        return Tone.WAITING
    if ready.status == ConditionStatus.TRUE:
        return Tone.GOOD
    return Tone.BAD if is_problem(ready.reason) else Tone.WAITING


def _holders(cluster: Cluster, pool: GPUPool) -> tuple[Holder, ...]:
    """Sessions that hold accelerators of the pool, in the order in which they get them; then those not readable."""
    name = pool.metadata.name
    accounts: Mapping[str, tuple[int, int]] = {
        account.key: (account.held[name], account.priority)
        for account in cluster.ledger.on(name)
        if account.held.get(name)
    }
    keys = dict.fromkeys((*accounts, *pool.status.sessions))
    found = []
    for key in keys:
        namespace, _, session = key.partition("/")
        accelerators, priority = accounts.get(key, (None, None))
        found.append(Holder(namespace, session, accelerators, priority, key in cluster.sessions))
    return tuple(found)


def _facts(pool: GPUPool) -> list[Fact]:
    spec, status = pool.spec, pool.status
    shares = f", up to {spec.sharing.max_divisor} vGPUs of an accelerator" if spec.sharing.max_divisor > 1 else ""
    facts = [
        Fact("accelerator", pool.accelerator_name),
        Fact("sharing", f"{spec.sharing.mode}{shares}"),
        Fact("nodes", str(status.nodes)),
        Fact("accelerators of a node", str(spec.gpus_per_node)),
        Fact("nodes selected by", str(pool.node_selector)),
        Fact("bandwidth of a node", f"{spec.bandwidth}bit/s"),
    ]
    facts += [Fact("memory of an accelerator", str(spec.memory))] if spec.memory is not None else []
    facts += [Fact("power of an accelerator", f"{spec.power_watts} W")] if spec.power_watts is not None else []
    facts += [Fact("emulated", "yes: accelerators that are not there")] if spec.emulation is not None else []
    facts += [
        Fact("hardware", f"{found.product}: {found.nodes} nodes with {found.gpus_per_node} GPUs")
        for found in status.hardware
    ]
    if status.unschedulable is not None:
        facts.append(Fact("nodes that take no new pods", ", ".join(status.unschedulable.nodes)))
    return facts
