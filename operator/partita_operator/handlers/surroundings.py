"""What a pass works with: the adapters, and what the operator remembers of each session between passes.

Nothing that is remembered here is needed: an operator that starts anew measures, asks and searches again.
"""

import asyncio
from dataclasses import dataclass, field

from lightkube import AsyncClient

from partita_operator.handlers.leadership import Leadership
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.plan_searches import Searches
from partita_operator.kube.cache import ClusterCache
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.writes import ObjectWriter
from partita_operator.ports import GpuPartitioner, OperatorSettings, ProfileRunner, ServingEngines
from partita_runtime.autoscaling.load_level import RateHistory


@dataclass
class Memory:
    """What is remembered of one session."""

    rates: RateHistory = field(default_factory=RateHistory)
    problem: str = ""
    """What the actions of the last pass failed with."""


@dataclass(frozen=True)
class Surroundings:
    """Everything around a pass."""

    settings: OperatorSettings
    client: AsyncClient
    cache: ClusterCache
    writer: ObjectWriter
    profiles: ProfileStore
    engines: ServingEngines
    runner: ProfileRunner
    searches: Searches
    metrics: Metrics
    leadership: Leadership
    partitioner: GpuPartitioner | None = None
    """None: GPUs are not cut."""
    memories: dict[str, Memory] = field(default_factory=dict)
    pool_problems: dict[str, str] = field(default_factory=dict)
    """What the last steps with the GPUs of pools failed with."""
    plan_creation: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a plan is checked against what is free, and created or woken, so that nothing is given away twice."""

    def memory(self, session: str) -> Memory:
        """What is remembered of the session."""
        return self.memories.setdefault(session, Memory())

    def forget(self, session: str) -> None:
        """The session is gone."""
        self.memories.pop(session, None)
        self.searches.cancel(session)
        self.metrics.forget(session)
