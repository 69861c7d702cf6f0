"""When one plan may replace another, and what a waiting plan would change."""

import re
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import Field

from partita_api.fields.quantity import Quantity
from partita_api.meta import Rule, SpecModel, StatusModel, Timestamp

TIME_OF_DAY: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"


class Weekday(StrEnum):
    """A day of the week, in UTC; in ISO's order."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


class MaintenanceWindow(SpecModel):
    """A weekly time in which another plan may be rolled out."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "start must be a time of day in UTC from 00:00 to 23:59, such as 22:30",
            lambda window: re.fullmatch(TIME_OF_DAY, window.start) is not None,
            f"self.start.matches('^{TIME_OF_DAY}$')",
        ),
    )

    days: tuple[Weekday, ...] = Field(
        default=(), max_length=7, description="Days of the week on which it begins, such as [Sat, Sun]. Empty: all."
    )
    start: str = Field(max_length=5, description='Time of day in UTC at which it begins, such as "22:30".')
    duration_minutes: int = Field(
        ge=10, le=10_080, description="Duration in minutes; it may pass midnight. 10080 is a week."
    )


class PlannedChange(StatusModel):
    """One change that a plan would make."""

    where: str = Field(max_length=253, description="The plan, a pool, a module, or a pipeline of a module.")
    what: str = Field(max_length=253, description="What differs.")
    before: str | None = Field(default=None, max_length=253, description="Present value; unset if it is new.")
    after: str | None = Field(default=None, max_length=253, description="New value; unset if it is removed.")


class PlanPreview(StatusModel):
    """A plan that is held back, compared with the current plan."""

    plan: str = Field(description="Name of the waiting PipelinePlan.")
    reason: str = Field(max_length=40, description="The reason of the condition Held.")
    not_before: Timestamp | None = Field(
        default=None,
        description="When the next maintenance window begins, if it waits for that.",
    )
    cost_per_hour: Quantity = Field(description="Price of the vGPUs that it would allocate.")
    current_cost_per_hour: Quantity | None = Field(default=None, description="The same for the current plan.")
    throughput: Quantity = Field(description="Requests per second that it could serve.")
    current_throughput: Quantity | None = Field(default=None, description="The same for the current plan.")
    changes: tuple[PlannedChange, ...] = Field(
        default=(), max_length=64, description="What it would change in the current plan, in the planner's order."
    )
