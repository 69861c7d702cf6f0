"""Pools that grow: accelerators that a node autoscaler brings when pods ask for them."""

from typing import Final

from pydantic import Field

from partita_api.meta import SpecModel, StatusModel, Timestamp

MOST_ACCELERATORS: Final = 10**12
"""Of a pool, in its status."""


class Elastic(SpecModel):
    """Accelerators that are not there yet. Pods that wait for a node bring them, by a node autoscaler."""

    max_count: int = Field(
        ge=1,
        le=1_000_000,
        description="How many accelerators plans may use, present and absent ones together. If more are present, "
        "plans may use these.",
    )
    provision_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="Expected time until a requested node offers its accelerators. Once nodes have come, their mean "
        "time counts instead.",
    )
    provision_timeout_seconds: int = Field(
        default=900,
        ge=1,
        le=86_400,
        description="If no requested node comes for this time, plans use only present accelerators for backOffSeconds.",
    )
    back_off_seconds: int = Field(
        default=1800,
        ge=0,
        le=604_800,
        description="How long plans use only present accelerators after requested nodes did not come.",
    )
    keep_seconds: int = Field(
        default=600,
        ge=0,
        le=86_400,
        description="After a node came, sessions of the pool release no replicas for this time, and a lower rate "
        "makes no smaller plan.",
    )


class ElasticStatus(StatusModel):
    """Accelerators of an elastic pool that are present, and those that plans wait for."""

    present: int = Field(
        default=0,
        ge=0,
        le=MOST_ACCELERATORS,
        description="Accelerators that ready nodes offer now, without those that `status.unschedulable` leaves out.",
    )
    pending: int = Field(
        default=0,
        ge=0,
        le=MOST_ACCELERATORS,
        description="Accelerators that plans use and that are not present yet.",
    )
    max_count: int = Field(
        default=0,
        ge=0,
        le=MOST_ACCELERATORS,
        description="The most accelerators that plans may use: spec.elastic.maxCount.",
    )
    pending_since: Timestamp | None = Field(
        default=None,
        description="Since when plans wait for accelerators; unset if they wait for none.",
    )
    last_arrival_time: Timestamp | None = Field(
        default=None,
        description="When accelerators that plans waited for last became present.",
    )
    keep_until: Timestamp | None = Field(
        default=None,
        description="Until when sessions release no replicas, because accelerators have just come.",
    )
    back_off_until: Timestamp | None = Field(
        default=None,
        description="Until when plans use only present accelerators, because requested nodes did not come.",
    )
    measured_provision_seconds: int | None = Field(
        default=None, description="Mean time until a requested node offered its accelerators; unset before the first."
    )
