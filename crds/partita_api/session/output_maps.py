"""Which outputs of a model are the inputs of the model after it."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from partita_api.meta import Rule
from partita_api.session.edge import Edge
from partita_api.session.module import Inputs, Module, TensorSpec, names_of, specs_of

ONLY_INPUT = "input"
"""In a map, the name of an input that has none."""


class UnknownOutputError(ValueError):
    """A map names an output that the model does not have; the message says which there are."""


def chosen_outputs(edge: Edge, takes: Inputs, names: Sequence[str], count: int) -> list[int]:
    """The number of an output for each of `takes`, by the edge's map: the first output if it has none.

    names: the model's own names of its `count` outputs; empty if they are unknown. Raises UnknownOutputError.
    """
    if edge.outputs is None:
        return [0]
    return [_number(edge, edge.outputs[input], names, count) for input in names_of(takes) or (ONLY_INPUT,)]


def map_problems(edge: Edge, takes: Inputs, names: Sequence[str], outputs: Sequence[TensorSpec]) -> Iterator[str]:
    """What is wrong with the map of an edge for a model with these outputs: a sentence each, with the fix."""
    try:
        chosen = chosen_outputs(edge, takes, names, len(outputs))
    except UnknownOutputError as error:
        yield str(error)
        return
    for name, number, spec in zip(names_of(takes) or (ONLY_INPUT,), chosen, specs_of(takes), strict=True):
        given = outputs[number]
        if given.dtype != spec.dtype or spec.shape not in (given.shape, given.shape[1:]):
            yield (
                f"the edge from {edge.source} to {edge.target} gives {given.dtype} {list(given.shape)} to {name}, "
                f"which takes {spec.dtype} {list(spec.shape)}: map another output to it, or correct its shape or dtype"
            )


def output_number(output: str, names: Sequence[str], count: int) -> int | None:
    """The number of a model's output, given by name or number; None if it has no such output.

    names: the model's own names of its `count` outputs; empty if they are unknown.
    """
    if output in names:
        return names.index(output)
    number = int(output) if output.isascii() and output.isdecimal() and len(output) < 4 else count
    return number if number < count else None


def in_words(names: Sequence[str], count: int) -> str:
    """How maps and expressions call the outputs of a model."""
    return ", ".join(name or str(number) for number, name in enumerate(names or [""] * count))


def _number(edge: Edge, output: str, names: Sequence[str], count: int) -> int:
    number = output_number(output, names, count)
    if number is None:
        raise UnknownOutputError(
            f"the edge from {edge.source} to {edge.target} maps output {output}, which {edge.source} does not have: "
            f"its outputs are {in_words(names, count)}"
        )
    return number


def _answering(spec: Any) -> dict[str, Module]:
    """The modules that answer with tensors of their own choice: models and endpoints."""
    return {module.name: module for module in spec.modules if module.function is None}


def _needs_map(spec: Any, edge: Edge) -> bool:
    """Whether an edge leads from a model or an endpoint to a model of inputs with names."""
    modules = _answering(spec)
    return edge.source in modules and edge.target in modules and modules[edge.target].inputs is not None


def _maps_every_input(spec: Any, edge: Edge) -> bool:
    """Whether the map of an edge has the inputs of the downstream module."""
    modules = _answering(spec)
    if edge.outputs is None:
        return True
    if edge.source not in modules or edge.target not in modules:
        return False
    takes, sized = modules[edge.target].takes, modules[edge.source].sizes or modules[edge.target].sizes
    return takes is not None and not sized and edge.outputs.keys() == {*(names_of(takes) or [ONLY_INPUT])}


MAP_RULES: Final = (
    Rule(
        "an edge from a model to a model with inputs needs map: an output for each input",
        lambda spec: not any(edge.outputs is None and _needs_map(spec, edge) for edge in spec.edges),
        "!has(self.edges) || !self.modules.exists(m, has(m.inputs)) || self.edges.all(e, has(e.map) || "
        "!self.modules.exists(m, m.name == e.to && has(m.model) && has(m.inputs)) || "
        "!self.modules.exists(m, m.name == e.from && !has(m.__function__)))",
    ),
    Rule(
        "map is for edges without functions and sizes, and needs the inputs of the module in to, no others (input, if "
        "it has only one)",
        lambda spec: all(_maps_every_input(spec, edge) for edge in spec.edges),
        "!has(self.edges) || self.edges.all(e, !has(e.map) || "
        "(self.modules.exists(m, m.name == e.from && !has(m.__function__) && !has(m.sizes)) && "
        "self.modules.exists(m, m.name == e.to && !has(m.__function__) && !has(m.sizes) && "
        "(has(m.inputs) ? size(m.inputs) == size(e.map) && m.inputs.all(i, i.name in e.map) : "
        "size(e.map) == 1 && 'input' in e.map))))",
    ),
)
"""Rules of a session."""
