"""Checks of a problem's profiles that go beyond their schema."""

from collections.abc import Iterator

from partita_planner.problem import PlanningProblem


def profile_problems(problem: PlanningProblem) -> Iterator[str]:
    """What is wrong with the profiles: a sentence each, with the fix. Nothing if they are valid."""
    seen: dict[tuple[str, str], tuple[str, int]] = {}
    for (module, pool), profile in sorted(problem.profiles.items(), key=lambda item: item[0]):
        label = f"the profile of {module!r} on pool {pool!r}"
        other, blocks = seen.setdefault((module, profile.partition), (pool, profile.blocks))
        if blocks != profile.blocks:
            yield (
                f"{label} has {profile.blocks} blocks and the profile on {other!r} has {blocks}, but both name the "
                f"same partition of the model: profile the model again on both pools"
            )
