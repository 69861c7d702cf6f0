"""How many replicas a session has: as many as its load needs, and others in reserve for losses."""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from partita_api.fields.quantity import Percent
from partita_api.meta import Rule, SpecModel


class AutoscalingMode(StrEnum):
    """What the autoscaler may do."""

    ENABLED = "Enabled"
    ADVISORY = "Advisory"
    DISABLED = "Disabled"


class ScaleToZero(SpecModel):
    """When a session without requests releases all of its replicas, and how long a request then waits for them."""

    after_seconds: int = Field(
        ge=1,
        le=2_592_000,
        description="Seconds without a request after which all stages release their replicas. The frontends stay.",
    )
    hold_seconds: int = Field(
        default=120,
        ge=1,
        le=3600,
        description="Most seconds that a request is held while replicas start; then it gets a 503. Its SLO begins "
        "when the replicas are up.",
    )


class Autoscaling(SpecModel):
    """How the number of replicas follows the load."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "autoscaling.scaleToZero needs autoscaling.mode Enabled or Advisory; change the mode, or remove "
            "scaleToZero",
            lambda spec: spec.scale_to_zero is None or spec.mode is not AutoscalingMode.DISABLED,
            "!has(self.scaleToZero) || !has(self.mode) || self.mode != 'Disabled'",
        ),
    )

    mode: AutoscalingMode = Field(
        default=AutoscalingMode.ENABLED,
        description="Enabled: replicas follow the load. Advisory: recommend only. Disabled: replicas stay as planned.",
    )
    bad_rate_threshold: Percent = Field(
        default=Percent("1%"), description="Share of dropped or late requests above which replicas are added."
    )
    idle_fraction_threshold: Percent = Field(
        default=Percent("30%"), description="Idle share of a stage's GPUs above which replicas are removed."
    )
    window_seconds: int = Field(default=10, ge=1, le=3600, description="Seconds over which the signals are averaged.")
    cool_down_seconds: int = Field(default=30, ge=0, le=86_400, description="Seconds between two steps.")
    look_ahead_seconds: int = Field(
        default=60,
        ge=0,
        le=3600,
        description="Replicas are added for the expected rate after this many seconds. Choose about a window, a "
        "cool-down and the start of a replica. 0: only for lost requests.",
    )
    max_replicas: int = Field(default=1000, ge=1, le=100_000, description="Most replicas of one stage.")
    scale_to_zero: ScaleToZero | None = Field(
        default=None,
        description="Remove all replicas while there are no requests, and hold the next request until replicas are "
        "up. Without it every stage keeps at least one.",
    )


class Loss(StrEnum):
    """What may be lost at a time."""

    REPLICA = "Replica"
    POOL = "Pool"


class AvailabilityGoal(SpecModel):
    """Replicas in reserve, so that the rest of them serves while some are lost."""

    survive_loss: Loss = Field(
        description="What may be lost at any time. Replica: any one replica. Pool: all replicas on any one GPUPool."
    )
    served_share: Percent = Field(
        default=Percent("100%"),
        description="Share of the planned rate that the rest serves within the SLO meanwhile.",
    )
    min_replicas: int = Field(default=1, ge=1, le=1000, description="Fewest replicas of every stage.")
