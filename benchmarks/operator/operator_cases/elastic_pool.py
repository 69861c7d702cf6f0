"""One session on an elastic pool whose nodes take their time, second by second.

The decisions are the product's: the autoscaling rule, and what the pool's status says of its nodes. Simulated are the
load, the nodes and the replicas. A replica serves `REPLICA_RATE` requests per second, and what is above that in a
second is lost: the flat top of deferred batching.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tests.runtime.autoscaling.load_model import PlanSignals, StageSignals, plan_of

from partita_api.conditions import ConditionStatus
from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.session.autoscaling import Autoscaling
from partita_operator.reconcile.pool.accelerator_count import Count
from partita_operator.reconcile.pool.provisioning import provisioning
from partita_operator.reconcile.reasons import Reason
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.replicas import autoscale, planned_targets

REPLICA_RATE: Final = 100.0
"""Requests per second of one replica, which has an accelerator and a node of its own."""
START_SECONDS: Final = 20
"""From the node to the first batch of a replica."""
EMPTY_SECONDS: Final = 120
"""An empty node goes after so long: Ray's autoscaler and the node autoscaler wait 60 s each."""
NODE_SPREAD: Final = 0.2
"""A node takes so much less or more than expected, as a share."""
SETTINGS: Final = Autoscaling()
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH: Final = 10
_PLAN: Final = plan_of({"model": {"p0": [("gpu", 1, 1, round(_BATCH * 1e6 / REPLICA_RATE))]}}, _BATCH)


@dataclass(frozen=True)
class Variant:
    """How the pool prepares for a rising load."""

    extended: bool = False
    """Whether the look-ahead is extended by the time of a node."""
    spare: int = 0
    """Empty nodes that a placeholder always keeps."""
    fixed: int | None = None
    """Replicas without an autoscaler; None with it."""


@dataclass(frozen=True)
class Outcome:
    """What a load cost, and what it lost."""

    offered: float
    lost: float
    accelerator_hours: float
    """From the request for a node until it goes."""

    @property
    def bad_rate(self) -> float:
        """Share of the requests that were lost."""
        return self.lost / self.offered


@dataclass
class _Nodes:
    """The nodes of the pool, and the replicas that run on them or wait for them."""

    node_seconds: float
    spare: int
    rng: random.Random
    present: int
    replicas: list[float]
    """When each one becomes ready, oldest first; infinite while it waits for a node."""
    coming: list[float] = field(default_factory=list)
    """When each requested node comes."""
    empty: list[float] = field(default_factory=list)
    """Since when nodes beyond the spare ones are empty."""

    def pass_second(self, now: float) -> int:
        """What happens in a second; returns the nodes that exist or are requested."""
        self.present += sum(at <= now for at in self.coming)
        self.coming = [at for at in self.coming if at > now]
        placed = sum(at < inf for at in self.replicas)
        for at in range(placed, min(len(self.replicas), self.present)):
            self.replicas[at] = now + START_SECONDS
        while self.present + len(self.coming) < len(self.replicas) + self.spare:
            factor = self.rng.uniform(1 - NODE_SPREAD, 1 + NODE_SPREAD)
            self.coming.append(now + self.node_seconds * factor)
        surplus = max(0, self.present - len(self.replicas) - self.spare)
        self.empty = [*self.empty, *[now] * surplus][:surplus]
        leaving = sum(since <= now - EMPTY_SECONDS for since in self.empty)
        self.empty = self.empty[leaving:]
        self.present -= leaving
        return self.present + len(self.coming)

    def scale(self, count: int) -> None:
        """Add replicas that wait, or remove the youngest."""
        self.replicas = [*self.replicas, *[inf] * count][:count]

    def ready(self, now: float) -> int:
        """Replicas that serve."""
        return sum(at <= now for at in self.replicas)


def run(rates: NDArray[np.float64], variant: Variant, node_seconds: float, most: int, seed: int) -> Outcome:
    """Serve a load with these rates, one a second; the pool has at most `most` accelerators."""
    arrivals = np.random.default_rng(seed).poisson(rates)
    first = variant.fixed or needed_replicas(float(rates[0]))
    nodes = _Nodes(node_seconds, variant.spare, random.Random(seed), first + variant.spare, [0.0] * first)
    operator = _Operator(_pool(most, node_seconds), variant.extended)
    lost, node_sum = 0.0, 0
    window: list[tuple[int, int]] = []
    for second, arrived in enumerate(arrivals.tolist()):
        node_sum += nodes.pass_second(second)
        ready = nodes.ready(second)
        lost += max(0.0, arrived - ready * REPLICA_RATE)
        window.append((ready, arrived))
        if len(window) == SETTINGS.window_seconds:
            if variant.fixed is None:
                nodes.scale(operator.decide(second, window, len(nodes.replicas), nodes.present))
            window = []
    return Outcome(float(arrivals.sum()), lost, node_sum / 3600)


def needed_replicas(rate: float) -> int:
    """Replicas that serve this rate and leave the idle share that the autoscaler leaves."""
    return ceil(rate / REPLICA_RATE / (1 - SETTINGS.idle_fraction_threshold.fraction))


@dataclass
class _Operator:
    """The pure part of the operator, with what it remembers."""

    pool: GPUPool
    extended: bool
    rates: RateHistory = field(default_factory=RateHistory)
    changed_at: float = -inf

    def decide(self, second: int, window: Sequence[tuple[int, int]], replicas: int, present: int) -> int:
        """The replicas after a window of (ready replicas, arrivals) in each second."""
        count = Count(present, present, ConditionStatus.TRUE, Reason.AVAILABLE, "")
        found = provisioning(self.pool, count, replicas, _EPOCH + timedelta(seconds=second))
        self.pool = self.pool.model_copy(update={"status": GPUPoolStatus(elastic=found.status)})
        self.rates = self.rates.add(second, sum(arrived for _, arrived in window) / len(window))
        needs_node = present <= replicas
        decision = autoscale(
            SETTINGS,
            _PLAN,
            [replace(target, replicas=replicas) for target in planned_targets(_PLAN)],
            _measured(window),
            {"gpu": found.count.capacity - replicas},
            second - self.changed_at,
            rates={"model": self.rates},
            keeping_pools=["gpu"] if found.status is not None and found.status.keep_until is not None else [],
            provision_seconds=self.pool.provision_seconds if self.extended and needs_node else 0.0,
        )
        if decision.changed:
            self.changed_at = second
        (target,) = decision.targets
        return target.replicas


def _pool(most: int, node_seconds: float) -> GPUPool:
    elastic = {"maxCount": most, "provisionSeconds": round(node_seconds)}
    return GPUPool.model_validate({"metadata": {"name": "gpu"}, "spec": {"elastic": elastic}})


def _measured(window: Sequence[tuple[int, int]]) -> PlanSignals:
    """What the frontends report of a window."""
    capacity = REPLICA_RATE * sum(ready for ready, _ in window)
    offered = sum(arrived for _, arrived in window)
    served = sum(min(arrived, ready * REPLICA_RATE) for ready, arrived in window)
    bad_rate = 1 - served / offered if offered else 0.0
    stage = StageSignals("model", "p0", 0, window[-1][0], idle_fraction=1 - served / capacity, bad_rate=bad_rate)
    return PlanSignals(_PLAN.metadata.name, (stage,))
