"""The result for a workload: machines of each configuration for every module, their load, latency and cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from partita_planner.configurations.workload import Configuration
from partita_planner.solver.tolerances import ROUNDING


@dataclass(frozen=True)
class Allocation:
    """Machines of one configuration."""

    configuration: Configuration
    rate: float
    """Requests per second that they serve, including dummy requests."""

    @property
    def machines(self) -> int:
        """Whole machines that the rate needs."""
        return max(1, ceil(self.rate / self.configuration.throughput - ROUNDING))

    @property
    def occupied(self) -> float:
        """Machines in proportion to the time that they work (frame-rate proportionality)."""
        return self.rate / self.configuration.throughput


@dataclass(frozen=True)
class Schedule:
    """The machines of one module."""

    allocations: tuple[Allocation, ...]
    """In the order of dispatch, highest throughput-cost ratio first."""
    latency: float
    """Worst case in seconds, under the dispatch model that it was made for."""
    dummy: float = 0.0
    """Requests per second that are added to the module's own requests to fill batches sooner."""

    @cached_property
    def occupancy(self) -> float:
        """Price per hour of the time that machines work: sum of p * f / t (Harpagon, section III-A)."""
        return sum(a.configuration.request_price * a.rate for a in self.allocations)

    @cached_property
    def allocated(self) -> float:
        """Price per hour of whole machines."""
        return sum(a.configuration.price * a.machines for a in self.allocations)


@dataclass(frozen=True)
class WorkloadSchedule:
    """Schedules for all modules that keep the SLO on every path."""

    schedules: Mapping[str, Schedule]

    @cached_property
    def occupancy(self) -> float:
        """Price per hour of the time that machines work."""
        return sum(schedule.occupancy for schedule in self.schedules.values())

    @cached_property
    def allocated(self) -> float:
        """Price per hour of whole machines."""
        return sum(schedule.allocated for schedule in self.schedules.values())

    @property
    def latency(self) -> dict[str, float]:
        """Worst case of each module in seconds."""
        return {name: schedule.latency for name, schedule in self.schedules.items()}


def batch_aware_latency(allocations: Sequence[Allocation]) -> float:
    """Worst case in seconds when whole batches are dispatched in the order of throughput-cost ratio (Theorem 1).

    Machines of one ratio share the remaining rate, whatever their load.
    """
    return max(
        a.configuration.duration
        + a.configuration.batch
        / sum(o.rate for o in allocations if o.configuration.request_price >= a.configuration.request_price)
        for a in allocations
    )


def batch_aware_schedule(allocations: Sequence[Allocation], rate: float) -> Schedule:
    """The schedule for `rate` requests per second; the rest of the allocations' rate is dummy requests."""
    dummy = sum(a.rate for a in allocations) - rate
    return Schedule(tuple(allocations), batch_aware_latency(allocations), dummy if dummy > ROUNDING * rate else 0.0)
