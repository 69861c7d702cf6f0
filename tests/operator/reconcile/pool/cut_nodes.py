"""Nodes that a pool cuts into MIG slices, and the operator's passes over them, with a double of mig-manager."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.builders import pool
from tests.operator.mig_manager_double import MigManagerDouble
from tests.operator.reconcile.simulated import EPOCH

from partita_api.conditions import ConditionType
from partita_api.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION, FINALIZER
from partita_operator.partitioning.mig_manager import labels_after
from partita_operator.ports import NodeStep, StepKind
from partita_operator.reconcile.actions import PartitionNode, PublishConfigurations
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, CUT_BY, DRAINING, MIG_CONFIG
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.world import Node, PartitionerWorld, PoolWorld
from partita_operator.settings.mig import MigSettings
from partita_operator.settings.model import OperatorSettings
from partita_planner.mig.partitioning import desired_partitioning
from partita_planner.mig.products import known_products

SLICES = {"nvidia.com/mig-1g.10gb": 14}
GFD = {
    "gpus": "h100",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
}
MIG: dict[str, Any] = {
    "product": "H100-80GB",
    "gpusPerNode": 2,
    "layouts": [{"nodes": 3, "gpus": [{"count": 2, "slices": {"1g.10gb": 7}}]}],
}
STEP_S = 5.0


def vision(**mig: Any) -> GPUPool:
    """A pool that requests cuts of its three nodes."""
    built = pool("vision").build()
    spec = GPUPoolSpec.model_validate(
        {
            "nodeSelector": {"matchLabels": {"gpus": "h100"}},
            "resourceName": "nvidia.com/mig-1g.10gb",
            "sharing": {"mode": "MIG"},
            "mig": {**MIG, **mig},
        }
    )
    meta = built.metadata.model_copy(update={"finalizers": (FINALIZER,), "generation": 1})
    return built.model_copy(update={"spec": spec, "metadata": meta, "status": GPUPoolStatus()})


def node(name: str, **labels: str) -> Node:
    return Node(name, True, {"nvidia.com/gpu": 2}, {**GFD, **labels}, uid=f"uid-{name}")


@dataclass
class Nodes:
    """Nodes, and the operator's passes over them; a pass takes five seconds of the clock."""

    pool: GPUPool = field(default_factory=vision)
    nodes: dict[str, Node] = field(default_factory=lambda: {n: node(n) for n in ("a", "b", "c")})
    others: list[GPUPool] = field(default_factory=list)
    sessions: list[InferenceSession] = field(default_factory=list)
    settings: MigSettings = field(default_factory=lambda: MigSettings(enabled=True, settle_seconds=60))
    mig_manager: MigManagerDouble = field(default_factory=MigManagerDouble)
    published: Mapping[str, Any] | None = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0
    steps: list[tuple[StepKind, str]] = field(default_factory=list)
    most_drained: int = 0

    def approve(self) -> None:
        asked = desired_partitioning("vision", self.pool.spec.mig, known_products()) if self.pool.spec.mig else None
        annotations = {APPROVED_ANNOTATION: asked.change if asked else ""}
        self.pool = self.pool.model_copy(
            update={"metadata": self.pool.metadata.model_copy(update={"annotations": annotations})}
        )

    def one_pass(self) -> None:
        """One pass of the operator over the pool, then one pass of mig-manager over the nodes."""
        world = PoolWorld(
            self.pool,
            Cluster({p.metadata.name: p for p in (self.pool, *self.others)}, {s.key: s for s in self.sessions}),
            OperatorSettings(mig=self.settings),
            tuple(self.nodes[name] for name in sorted(self.nodes)),
            partitioner=PartitionerWorld(
                self.published,
                {n.name: self.replicas.get(n.name, 0) for n in self.nodes.values() if DRAINING in n.labels},
                self.problem,
            ),
        )
        decision = reconcile_pool(world, EPOCH + timedelta(seconds=self.seconds))
        self.pool = self.pool.model_copy(update={"status": decision.status})
        for action in decision.actions:
            if isinstance(action, PublishConfigurations):
                self.published = action.configurations
            if isinstance(action, PartitionNode):
                self.take(action.step)
        self.most_drained = max(self.most_drained, sum(DRAINING in n.labels for n in self.nodes.values()))
        self.nodes = {name: self.mig_manager.look(n, self.published or {}) for name, n in self.nodes.items()}
        self.seconds += STEP_S

    def take(self, step: NodeStep) -> None:
        self.steps.append((step.kind, step.node))
        if step.kind is StepKind.EVICT:
            self.replicas[step.node] = 0
            return
        there = self.nodes[step.node]
        ours = {CUT_AS, CUT_BY, DRAINING} | ({MIG_CONFIG} if step.present else set())
        others = {key: value for key, value in there.labels.items() if key not in ours}
        self.nodes[step.node] = replace(there, labels={**others, **labels_after(step)})

    def run(self, passes: int = 60) -> None:
        for _ in range(passes):
            self.one_pass()

    def relabel(self, name: str, **labels: str) -> None:
        there = self.nodes[name]
        changed = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        self.nodes[name] = replace(there, labels={**there.labels, **changed})

    @property
    def condition(self) -> tuple[str, str]:
        found = next(c for c in self.pool.status.conditions if c.type == ConditionType.PARTITIONED)
        return str(found.status), found.reason

    @property
    def message(self) -> str:
        return next(c.message for c in self.pool.status.conditions if c.type == ConditionType.PARTITIONED)

    @property
    def cut(self) -> list[str]:
        return sorted(n.name for n in self.nodes.values() if n.allocatable == SLICES)


def approved(**fields: Any) -> Nodes:
    nodes = Nodes(**fields)
    nodes.approve()
    return nodes
