"""What a pass uses: the adapters, and what the operator keeps in memory about each session between passes.

The operator does not depend on this memory: after a restart it measures, observes and searches again.
"""

import asyncio
from dataclasses import dataclass, field

from partita_operator.handlers.leadership import Leadership
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.plan_searches import PlanSearches
from partita_operator.handlers.quality_checks import QualityChecks
from partita_operator.issuers.issuers import Issuers
from partita_operator.kube.cache import ClusterCache
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.exposure.prerequisites import Prerequisites
from partita_operator.kube.exposure.session_objects import SessionObjects
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.writes import ObjectWriter
from partita_operator.ports import GpuPartitioner, ProfileRunner, ServingEngines
from partita_operator.settings.model import OperatorSettings
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.traffic import TrafficHistory


@dataclass
class SessionMemory:
    """What the operator keeps in memory about one session."""

    rates: RateHistory = field(default_factory=RateHistory)
    traffic: TrafficHistory = field(default_factory=TrafficHistory)
    problem: str = ""
    """Errors of the last pass's actions."""
    exposure_problem: str = ""
    """Errors of the last writes of the session's objects. They do not disturb anything else."""


@dataclass(frozen=True)
class Context:
    """The adapters and the memory that all passes share."""

    settings: OperatorSettings
    client: KubernetesClient
    cache: ClusterCache
    writer: ObjectWriter
    profiles: ProfileStore
    engines: ServingEngines
    runner: ProfileRunner
    searches: PlanSearches
    checks: QualityChecks
    metrics: Metrics
    leadership: Leadership
    objects: SessionObjects | None = None
    """None: sessions have no objects of their own, because there is no engine with pods."""
    prerequisites: Prerequisites | None = None
    """None: as for the objects."""
    issuers: Issuers = field(default_factory=lambda: Issuers(()))
    partitioner: GpuPartitioner | None = None
    """None: GPUs are not partitioned."""
    memories: dict[str, SessionMemory] = field(default_factory=dict)
    pool_problems: dict[str, str] = field(default_factory=dict)
    """Errors of the last partitioning steps, by pool."""
    plan_creation: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the check of free accelerators until a plan is created or scaled: no accelerator is given twice."""

    def memory(self, session: str) -> SessionMemory:
        """The memory of the session."""
        return self.memories.setdefault(session, SessionMemory())

    def forget(self, session: str) -> None:
        """Drop everything about a session that was deleted."""
        self.memories.pop(session, None)
        self.searches.cancel(session)
        self.checks.cancel(session)
        self.metrics.forget(session)
