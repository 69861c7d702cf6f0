"""Checks of a problem's profiles that go beyond their schema."""

from collections.abc import Iterator
from itertools import chain

from partita_api.profile import Profile
from partita_api.session.edge import Edge
from partita_api.session.module import Inputs, Module, NamedInput, specs_of
from partita_api.session.output_maps import map_problems
from partita_api.session.size_classes import size_classes
from partita_api.session.when import when_problems
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
    modules = {module.name: module for module in problem.spec.modules}
    yield from chain.from_iterable(_padding_problems(module, problem) for module in problem.spec.modules)
    for edge in problem.spec.edges:
        takes = modules[edge.target].takes
        for each in size_classes(modules[edge.source]):
            found = (_edge_problems(edge, takes, profile) for profile in _profiles_of(problem, each.name))
            yield from dict.fromkeys(chain.from_iterable(found))


def _padding_problems(module: Module, problem: PlanningProblem) -> Iterator[str]:
    """A value that fills up samples must select a row, if the numbers of its input do."""
    names = {each.name for each in size_classes(module)}
    known = [profile for (name, _), profile in sorted(problem.profiles.items()) if name in names]
    vocabularies = next((profile.vocabularies for profile in known if profile.vocabularies), ())
    for spec, rows in zip(() if module.takes is None else specs_of(module.takes), vocabularies, strict=False):
        if rows and spec.padding is not None and not 0 <= spec.padding.value < rows:
            name = f"inputs.{spec.name}" if isinstance(spec, NamedInput) else "input"
            yield (
                f"{name}.padding of module {module.name!r} is {spec.padding}, but its model has rows 0 to {rows - 1} "
                "only: give one of them, such as the tokenizer's pad_token_id"
            )


def _edge_problems(edge: Edge, takes: Inputs | None, profile: Profile) -> Iterator[str]:
    """What is wrong with an edge from the model of a profile."""
    if edge.outputs is not None and takes is not None:
        yield from map_problems(edge, takes, profile.output_names, profile.outputs)
    if edge.when is not None:
        yield from when_problems(edge, profile.output_names, profile.outputs)


def _profiles_of(problem: PlanningProblem, module: str) -> list[Profile]:
    """The profiles of a model that have its outputs."""
    return [profile for (name, _), profile in sorted(problem.profiles.items()) if name == module and profile.outputs]
