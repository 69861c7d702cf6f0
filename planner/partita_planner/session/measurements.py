"""What is wrong with the profiles of a problem beyond what their schema says."""

from collections.abc import Iterator
from typing import Final

from partita_planner.problem import PlanningProblem

MOST_BLOCKS: Final = 64
"""Of one model; a PipelinePlan counts no further."""


def profile_problems(problem: PlanningProblem) -> Iterator[str]:
    """What is wrong with the profiles, each as a sentence that says the fix; nothing if all can be planned with."""
    alike: dict[tuple[str, str], tuple[str, int]] = {}
    for (module, pool), profile in sorted(problem.profiles.items(), key=lambda item: item[0]):
        label = f"the profile of {module!r} on pool {pool!r}"
        if profile.blocks > MOST_BLOCKS:
            yield (
                f"{label} has {profile.blocks} blocks, and a plan at most {MOST_BLOCKS}: lower planner.blocks, and "
                f"profile it again"
            )
        other, blocks = alike.setdefault((module, profile.partition), (pool, profile.blocks))
        if blocks != profile.blocks:
            yield (
                f"{label} has {profile.blocks} blocks and that on {other!r} has {blocks}, though both say that they "
                f"cut the model alike: profile it again on both"
            )
