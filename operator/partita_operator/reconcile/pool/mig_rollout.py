"""Cutting a pool's nodes into MIG slices: from the labels of the nodes to the next steps, a few nodes at a time.

A node's state comes only from its labels, so a new operator continues where the last one ended:

    waiting -> draining -> cutting -> cut -> ready
                              |-> failed: Partita cuts no other node
    ready   -> changed: another client changed the label; Partita no longer cuts the node

A node counts as ready once mig-manager says so and the device plugin offers the slices: right after the label is set,
`success` may still be about the configuration before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from partita_api.conditions import ConditionType
from partita_api.fields.approval import Approval
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import EngineType
from partita_api.meta import APPROVED_ANNOTATION
from partita_api.pool.mig import MigPartitioning, NodeChange, PartitioningStatus
from partita_operator.ports import NodeStep, StepKind
from partita_operator.reconcile import commands
from partita_operator.reconcile.actions import Action, PartitionNode, PublishConfigurations
from partita_operator.reconcile.capacity.accounting import holding
from partita_operator.reconcile.clock import seconds_since, timestamp
from partita_operator.reconcile.findings import Finding, listed
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, CUT_BY, DRAINING, MIG_CONFIG, MIG_STATE
from partita_operator.reconcile.pool.mig_configurations import knows, to_publish
from partita_operator.reconcile.pool.node_eligibility import mark, on_node, refusal
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import Node, PoolWorld
from partita_planner.mig.errors import MigError
from partita_planner.mig.partitioning import DesiredPartitioning, NodePartitioning, desired_partitioning
from partita_planner.mig.products import ProductTable, known_products

_MOST_IN_STATUS: Final = 64
_UNDER_WAY: Final = frozenset({"pending", "rebooting"})
_PASSES_TO_SETTLE: Final = 3
"""Passes after which everything that depends on a drained node has been evaluated again."""


class Phase(StrEnum):
    """State of a node."""

    WAITING = "Waiting"
    DRAINING = "Draining"
    CUTTING = "Cutting"
    CUT = "Cut"
    """Its slices exist; replicas may use it again soon."""
    FAILED = "Failed"
    CHANGED = "Changed"
    READY = "Ready"


_UNAVAILABLE: Final = (Phase.DRAINING, Phase.CUTTING, Phase.CUT, Phase.FAILED)
"""Phases of nodes without pods of Partita."""


@dataclass(frozen=True)
class Partitioning:
    """The result for the slices of a pool's nodes."""

    finding: Finding | None = None
    """The condition Partitioned; None without spec.mig."""
    status: PartitioningStatus | None = None
    actions: tuple[Action, ...] = ()
    stalled: bool = False
    """Whether a person has to act."""


@dataclass(frozen=True)
class _Roll:
    """The nodes and the target of each."""

    world: PoolWorld
    spec: MigPartitioning
    desired: DesiredPartitioning
    targets: Mapping[str, NodePartitioning]
    """By node."""
    phases: Mapping[str, Phase]
    """By node, of those that have a target."""
    since: Mapping[str, str]
    """Since when nodes are being drained or cut."""
    refused: Mapping[str, str]
    """Why nodes cannot be cut."""
    approved: bool
    configs_published_time: str | None
    nodes: Mapping[str, Node]

    def those(self, *phases: Phase) -> list[str]:
        """The nodes in these phases, in order."""
        return [name for name, phase in self.phases.items() if phase in phases]


def partition(world: PoolWorld, now: datetime) -> Partitioning:
    """The next steps of the pool's nodes."""
    pool, settings = world.pool, world.settings.mig
    spec = pool.spec.mig
    if spec is None or pool.metadata.deletion_timestamp is not None:
        return Partitioning(actions=tuple(_releases(world, keep=())) if settings.enabled else ())
    if not settings.enabled:
        message = "The operator may not cut GPUs. Set mig.enabled of the chart."
        return Partitioning(_finding(Reason.PARTITIONING_DISABLED, message), PartitioningStatus(), stalled=True)
    products = product_table(world)
    try:
        desired = desired_partitioning(pool.metadata.name, spec, products)
    except MigError as error:
        finding = _finding(Reason.INVALID_SPEC, f"spec.mig cannot be met: {error}.")
        return Partitioning(finding, PartitioningStatus(), tuple(_releases(world, keep=())), stalled=True)
    roll = _roll(world, spec, desired, now)
    finding, stalled = _conclusion(roll)
    actions: list[Action] = []
    if world.partitioner.published is not None:
        configurations = to_publish(world, products)
        if configurations != world.partitioner.published:
            actions.append(PublishConfigurations(configurations))
    actions += _steps(roll, settings.settle_seconds, now)
    actions += _releases(world, keep=roll.targets)
    return Partitioning(finding, _status(roll), tuple(actions), stalled)


def product_table(world: PoolWorld) -> ProductTable:
    """The products that may be cut."""
    others = world.settings.mig.products
    return known_products().overridden_by(ProductTable(products=others)) if others else known_products()


def phase(node: Node, target: NodePartitioning) -> Phase:
    """Phase of a node on the way to its target."""
    labels = node.labels
    asked, config, state = labels.get(CUT_AS), labels.get(MIG_CONFIG), labels.get(MIG_STATE)
    if asked is not None and config != asked:
        return Phase.CHANGED
    if asked == target.name:
        if state == "failed":
            return Phase.FAILED
        if state != "success" or not _offers(node, target):
            return Phase.CUTTING
        return Phase.CUT if DRAINING in labels else Phase.READY
    if asked is not None and state in _UNDER_WAY:
        return Phase.CUTTING  # into the earlier target; mig-manager finishes that first
    return Phase.DRAINING if labels.get(DRAINING) == target.name else Phase.WAITING


def _offers(node: Node, target: NodePartitioning) -> bool:
    return all(node.allocatable.get(name, 0) == units for name, units in target.resources.items())


def _roll(world: PoolWorld, spec: MigPartitioning, desired: DesiredPartitioning, now: datetime) -> _Roll:
    pool = world.pool
    mine = [n for n in world.nodes if n.labels.get(CUT_BY) == mark(pool)]
    others = [p for p in world.cluster.pools.values() if p.metadata.name != pool.metadata.name]
    refused = {n.name: why for n in world.nodes if n not in mine and (why := refusal(n, spec, others))}
    targets = _targets([n for n in world.nodes if n.name not in refused], desired)
    nodes = {n.name: n for n in world.nodes}
    phases = {name: phase(nodes[name], target) for name, target in targets.items()}
    before = pool.status.partitioning or PartitioningStatus()
    begun = {(change.node, change.config, change.phase): change.last_transition_time for change in before.changes}
    same = before.change == desired.change
    known = knows(world.partitioner.published, desired)
    return _Roll(
        world=world,
        spec=spec,
        desired=desired,
        targets=targets,
        phases=phases,
        since={n: begun.get((n, t.name, str(phases[n])), timestamp(now)) for n, t in targets.items()},
        refused=refused,
        approved=spec.approval is Approval.AUTOMATIC
        or pool.metadata.annotations.get(APPROVED_ANNOTATION) == desired.change,
        configs_published_time=((before.configs_published_time if same else None) or timestamp(now)) if known else None,
        nodes=nodes,
    )


def _targets(nodes: Sequence[Node], desired: DesiredPartitioning) -> dict[str, NodePartitioning]:
    """Which node gets which configuration. Nodes that have it, or are being cut to it, keep it."""
    left = {configuration.name: configuration.nodes for configuration in desired.configurations}
    by_name = {configuration.name: configuration for configuration in desired.configurations}
    chosen: dict[str, NodePartitioning] = {}
    for label in (CUT_AS, DRAINING):
        for node in nodes:
            name = node.labels.get(label, "")
            if node.name not in chosen and left.get(name, 0) > 0:
                chosen[node.name] = by_name[name]
                left[name] -= 1
    slots = [by_name[name] for name, count in left.items() for _ in range(count)]
    free = sorted((n for n in nodes if n.name not in chosen), key=lambda n: (not n.ready, n.name))
    chosen |= {node.name: configuration for node, configuration in zip(free, slots, strict=False)}
    return dict(sorted(chosen.items()))


def _steps(roll: _Roll, settle_seconds: float, now: datetime) -> Iterator[PartitionNode]:
    """The steps for nodes that have a target."""
    settled = (
        roll.configs_published_time is not None and seconds_since(roll.configs_published_time, now) >= settle_seconds
    )
    continues = roll.approved and settled and not roll.those(Phase.FAILED)
    free_slots = roll.spec.max_unavailable - len(roll.those(*_UNAVAILABLE))
    for name, stands in roll.phases.items():
        node = roll.nodes[name]
        if stands is Phase.CUT:
            yield _step(StepKind.FINISH, roll, name)
        elif stands is Phase.DRAINING and not roll.approved:
            yield _step(StepKind.RELEASE, roll, name)
        elif stands is Phase.DRAINING and continues:
            kind = _next_of_drained(roll, name, now)
            if kind is not None:
                yield _step(kind, roll, name)
        elif stands is Phase.WAITING and continues and free_slots > 0 and node.ready:
            free_slots -= 1
            yield _step(StepKind.DRAIN, roll, name)
        elif stands is Phase.WAITING and DRAINING in node.labels:
            yield _step(StepKind.RELEASE, roll, name)


def _next_of_drained(roll: _Roll, name: str, now: datetime) -> StepKind | None:
    """Whether a node that is being drained can be cut; None while replicas may still leave by themselves."""
    world = roll.world
    drained_for = seconds_since(roll.since[name], now)
    if drained_for < _PASSES_TO_SETTLE * world.settings.resync_seconds or name not in world.partitioner.replicas:
        return None
    if _bound_to(roll, name):
        return None
    if world.partitioner.replicas[name] == 0:
        return StepKind.CUT
    pools = [p for p in world.cluster.pools.values() if on_node(p, roll.nodes[name])]
    fits = all(float(p.status.allocated) <= p.status.capacity for p in pools)
    return StepKind.EVICT if fits or drained_for >= roll.spec.drain_seconds else None


def _bound_to(roll: _Roll, name: str) -> list[str]:
    """Sessions of engine Ray that may have replicas on the node; Partita cannot move these."""
    cluster, default = roll.world.cluster, roll.world.settings.default_engine
    pools = {p.metadata.name for p in cluster.pools.values() if on_node(p, roll.nodes[name])}
    return sorted(
        session.key
        for session in cluster.sessions.values()
        if session.spec.engine.type_or(default) is EngineType.RAY and pools & holding(session, cluster).keys()
    )


def _step(kind: StepKind, roll: _Roll, name: str) -> PartitionNode:
    node = roll.nodes[name]
    return PartitionNode(_node_step(kind, node, roll.world.pool, roll.targets[name].name))


def _node_step(kind: StepKind, node: Node, pool: GPUPool, config: str) -> NodeStep:
    return NodeStep(kind, node.name, node.uid, mark(pool), config, node.labels.get(CUT_AS, ""))


def _releases(world: PoolWorld, keep: Mapping[str, NodePartitioning] | tuple[()]) -> Iterator[PartitionNode]:
    """Drained nodes of this pool that are no longer to be cut."""
    for node in world.nodes:
        if node.labels.get(CUT_BY) == mark(world.pool) and DRAINING in node.labels and node.name not in keep:
            yield PartitionNode(_node_step(StepKind.RELEASE, node, world.pool, ""))


def _status(roll: _Roll) -> PartitioningStatus:
    changes = [
        NodeChange(
            node=name,
            config=roll.targets[name].name,
            phase=str(roll.phases[name]),
            last_transition_time=roll.since[name],
        )
        for name in roll.those(*_UNAVAILABLE)
    ]
    return PartitioningStatus(
        change=roll.desired.change,
        approved=roll.approved,
        configs_published_time=roll.configs_published_time,
        desired_nodes=roll.desired.nodes,
        ready_nodes=len(roll.those(Phase.READY)),
        waiting_nodes=tuple(roll.those(Phase.WAITING))[:_MOST_IN_STATUS],
        changes=tuple(changes)[:_MOST_IN_STATUS],
    )


def _conclusion(roll: _Roll) -> tuple[Finding, bool]:
    """The condition, and whether a person has to act. Problems that stop everything come first."""
    world, phases = roll.world, Counter(roll.phases.values())
    counted = f"{phases[Phase.READY]} of {roll.desired.nodes} nodes are cut."
    if world.partitioner.problem:
        return _finding(Reason.PARTITIONING_FAILED, f"{world.partitioner.problem} {counted}"), True
    if failed := roll.those(Phase.FAILED):
        message = (
            f"mig-manager failed on {listed(failed)}, so Partita cuts no other node. {counted} Read the log of "
            "mig-manager there, and restart its pod to try again."
        )
        return _finding(Reason.PARTITIONING_FAILED, message), True
    if changed := roll.those(Phase.CHANGED):
        message = (
            f"Another client changed the label {MIG_CONFIG} of {listed(changed)}, so Partita no longer cuts these "
            f"nodes. {counted} To let Partita cut a node again: {commands.remove_node_label(changed[0], CUT_AS)}"
        )
        return _finding(Reason.LABELS_CHANGED, message), True
    if phases[Phase.READY] == roll.desired.nodes:
        return Finding(ConditionType.PARTITIONED, True, Reason.PARTITIONED, counted), False
    if not roll.approved and phases[Phase.WAITING] + phases[Phase.DRAINING] > 0:
        message = (
            f"Change {roll.desired.change} waits for approval: it drains and cuts {listed(roll.those(Phase.WAITING))}. "
            f"{counted} To approve it: {commands.approve_partitioning(world.pool.metadata, roll.desired.change)}"
        )
        return _finding(Reason.AWAITING_APPROVAL, message), False
    if under_way := roll.those(Phase.DRAINING, Phase.CUTTING, Phase.CUT, Phase.WAITING):
        steps = listed([_described(roll, name) for name in under_way], "; ")
        return _finding(Reason.PARTITIONING, f"{counted} {steps}."), False
    refused = listed([f"{name} {why}" for name, why in roll.refused.items()], "; ")
    message = (
        f"{counted} No other node can be cut{f': {refused}' if refused else ''}. Add or label nodes, or request fewer "
        "in spec.mig."
    )
    return _finding(Reason.NOT_ENOUGH_NODES, message), True


def _described(roll: _Roll, name: str) -> str:
    node, stands = roll.nodes[name], roll.phases[name]
    if stands is Phase.WAITING:
        return f"{name} waits"
    if stands is Phase.CUT:
        return f"{name} is cut"
    if stands is Phase.CUTTING:
        state = node.labels.get(MIG_STATE, "unknown")
        offers = ", and the device plugin does not offer its slices yet" if state == "success" else ""
        return f"cutting of {name} began at {roll.since[name]} (mig-manager: {state}{offers})"
    if bound := _bound_to(roll, name):
        return (
            f"{name} waits for {listed(bound)} of engine Ray, which Partita cannot move: let them use other pools, or "
            "delete them"
        )
    left = roll.world.partitioner.replicas.get(name, 0)
    return f"draining of {name} began at {roll.since[name]} (pods of Partita on it: {left})"


def _finding(reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.PARTITIONED, False, reason, message)
