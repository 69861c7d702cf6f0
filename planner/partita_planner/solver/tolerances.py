"""Tolerances: when two numbers count as equal, and how close to its bound a solution counts as optimal."""

from typing import Final

ROUNDING: Final = 1e-9
"""Relative tolerance of comparisons: sums of numbers such as 0.1 are not exact."""
FEASIBILITY: Final = 1e-5
"""Tolerance for constraints and whole numbers in HiGHS' answers: its own tolerance is 1e-6."""
COST_GAP: Final = 1e-6
"""Relative distance between value and bound at which a cost is proven."""
PROFILE_PRECISION: Final = 1e-4
"""Profiles are not more exact than this: values that differ by less count as equal."""
THROUGHPUT_GAP: Final = PROFILE_PRECISION
"""Relative distance between value and bound at which a throughput is proven."""
