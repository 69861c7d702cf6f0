"""Settings of the searches for plans."""

from pydantic import Field

from partita_operator.settings.section import Section


class PlanningSettings(Section):
    """How plans are searched for."""

    concurrent_searches: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Searches for plans that run at the same time, each in its own process with one core. The sessions "
        "of one namespace have at most all but one of them.",
    )
    max_time_limit_seconds: int = Field(
        default=300,
        ge=1,
        le=3600,
        description="Most seconds of one search. A session with a longer planner.timeLimitSeconds gets this.",
    )
    memory_mib: int = Field(
        default=1024,
        ge=256,
        le=1_048_576,
        description="Most MiB of memory of one search. The operator's memory limit must allow that many times "
        "concurrentSearches, and 300 MiB for the operator itself.",
    )
