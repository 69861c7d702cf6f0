"""The input and output tensors of a session, as a client of the Open Inference Protocol sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.cel.expression import Expression
from partita_api.session.edge import Edge
from partita_api.session.module import DType, ImageInput, Join, Module, TensorSpec, names_of, specs_of
from partita_api.session.size_classes import served_classes, size_classes
from partita_runtime.serving.protocol.variable_size import SizedInputs

MAX_SAMPLES: Final = 64
"""Most samples in one request."""


@dataclass(frozen=True)
class OutputTensor:
    """The name, element type and shape of one output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """-1 for the first dimension, the number of rows, and for one that differs between the model's size classes."""


class SampleOutput(NamedTuple):
    """One output of a model for one sample."""

    dtype: DType
    shape: tuple[int, ...]
    """-1 for a dimension that differs between the model's size classes."""


class EdgeCondition(NamedTuple):
    """For which answers of a module another one runs."""

    target: str
    """The downstream module."""
    when: Expression


@dataclass(frozen=True, eq=False)
class Interface:
    """The tensors of a session. All have a leading dimension: samples in a request, rows in an answer.

    It is compared by identity, so it can be the key of a cache.
    """

    model_name: str
    """The session's name, which is the protocol's model name."""
    session: InferenceSessionSpec
    model_outputs: Mapping[str, Sequence[TensorSpec]]
    """The outputs of each model, or size class, for one sample, if they are known."""
    output_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The models' own names of them, where an edge may ask for them."""
    vocabularies: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each input of a model, or size class, how many rows the table has from which its numbers select, as token ids
    do; 0 for other numbers. Without the models that select none."""
    planned: frozenset[str] | None = None
    """The models, and the size classes, with replicas; None for all."""

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        """The modules by name."""
        return {module.name: module for module in self.session.modules}

    @cached_property
    def roots(self) -> tuple[Module, ...]:
        """Modules without an incoming edge; their inputs are the request's tensors."""
        targets = {edge.target for edge in self.session.edges}
        return tuple(module for module in self.session.modules if module.name not in targets)

    @cached_property
    def sinks(self) -> tuple[Module, ...]:
        """Modules without an outgoing edge; their outputs are the request's answer."""
        sources = {edge.source for edge in self.session.edges}
        return tuple(module for module in self.session.modules if module.name not in sources)

    @cached_property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The tensors of a request, by name."""
        return {
            name: spec
            for root in self.roots
            if root.takes is not None
            for name, spec in zip(self.input_names(root), specs_of(root.takes), strict=True)
        }

    @cached_property
    def sized(self) -> Mapping[str, SizedInputs]:
        """The inputs of the modules with size classes, by module."""
        sized = [module for module in self.session.modules if module.sizes is not None]
        return {module.name: SizedInputs.of(module, self._served[module.name]) for module in sized}

    @cached_property
    def varying_together(self) -> tuple[Mapping[str, TensorSpec], ...]:
        """The tensors of a request that have one size, by name, for each root module with several that vary."""
        groups = [
            {
                name: self.inputs[name]
                for name in self.input_names(root)
                if self.inputs[name].variable_dimension is not None
            }
            for root in self.roots
            if root.inputs is not None
        ]
        return tuple(group for group in groups if len(group) > 1)

    def outputs_of(self, model: str) -> tuple[SampleOutput, ...]:
        """The outputs of a model for one sample; empty if they are not known."""
        known = [self.model_outputs.get(name, ()) for name in self._served[model]]
        if len({len(outputs) for outputs in known}) != 1:
            return ()
        return tuple(_common(outputs) for outputs in zip(*known, strict=True))

    def vocabularies_of(self, model: str) -> Sequence[int]:
        """The rows from which the numbers of each input of a model select; empty if they are not known."""
        return next((self.vocabularies[name] for name in self._served[model] if name in self.vocabularies), ())

    @cached_property
    def input_vocabularies(self) -> Mapping[str, int]:
        """The rows from which the numbers of a request's tensor select, by its name, for those that select rows."""
        return {
            name: rows
            for root in self.roots
            for name, rows in zip(self.input_names(root), self.vocabularies_of(root.name), strict=False)
            if rows
        }

    @cached_property
    def _served(self) -> Mapping[str, tuple[str, ...]]:
        """The modules of the plan that serve each module: its size classes with replicas, or itself."""
        classes = {
            module.name: size_classes(module) if self.planned is None else served_classes(module, self.planned)
            for module in self.session.modules
        }
        return {name: tuple(each.name for each in found) for name, found in classes.items()}

    @cached_property
    def images(self) -> Mapping[str, ImageInput]:
        """How JPEG and PNG images become inputs, by the tensor's name, for inputs that accept images."""
        return {self.input_names(root)[0]: root.image for root in self.roots if root.image is not None}

    def input_names(self, root: Module) -> tuple[str, ...]:
        """The names of the request's tensors for a root module, in the order of its inputs.

        `input`, or the module's own names of its inputs. With several roots that take tensors: the root's name, or
        `<root>.<input>`.
        """
        names = names_of(root.takes) if root.takes is not None else ()
        if sum(other.takes is not None for other in self.roots) == 1:
            return names or ("input",)
        return tuple(f"{root.name}.{name}" for name in names) or (root.name,)

    @cached_property
    def outputs(self) -> tuple[OutputTensor, ...]:
        """The tensors of an answer that are known in advance. Those of functions are not."""
        known: list[OutputTensor] = []
        for sink in self.sinks:
            outputs = self.outputs_of(sink.name)
            names = output_names(sink.name, len(outputs))
            known += [
                OutputTensor(name, output.dtype.value, (-1, *output.shape))
                for name, output in zip(names, outputs, strict=True)
            ]
            if sink.name in self.indexed:
                known.append(OutputTensor(index_name(sink.name), "INT64", (-1,)))
        known += [OutputTensor(answered_name(name), "BOOL", (-1,)) for name in self.optional]
        return tuple(known)

    @cached_property
    def optional(self) -> tuple[str, ...]:
        """Modules whose answer may be missing: optional ones, and those behind an edge with a condition."""
        conditional = {edge.target for edge in self.session.edges if edge.when is not None}
        return tuple(m.name for m in self.session.modules if m.optional or m.name in conditional)

    @cached_property
    def answering(self) -> tuple[str, ...]:
        """Modules of which an answer has tensors: the sinks, and those whose answer may be missing."""
        return tuple(dict.fromkeys([*(sink.name for sink in self.sinks), *self.optional]))

    @cached_property
    def conditions(self) -> Mapping[str, tuple[EdgeCondition, ...]]:
        """The edges with a condition, by their upstream module."""
        found: dict[str, tuple[EdgeCondition, ...]] = {}
        for edge in self.session.edges:
            if edge.when is not None:
                condition = EdgeCondition(edge.target, Expression.parse(edge.when))
                found[edge.source] = (*found.get(edge.source, ()), condition)
        return found

    @cached_property
    def varying(self) -> Mapping[str, tuple[Edge, ...]]:
        """The edges on which answers do not all make the same number of sub-requests, by their upstream module."""
        found: dict[str, tuple[Edge, ...]] = {}
        for edge in self.session.edges:
            source, target = self.modules[edge.source], self.modules[edge.target]
            may_leave_out = source.function is not None and target.function is None
            if edge.when is not None or edge.fan_out.max > 1 or may_leave_out:
                found[edge.source] = (*found.get(edge.source, ()), edge)
        return found

    @cached_property
    def indexed(self) -> frozenset[str]:
        """Sinks that can have no row or several rows for a sample; their answers need an index."""
        return frozenset(sink.name for sink in self.sinks if not self._one_row(sink.name))

    def may_give(self, output: str) -> bool:
        """Whether an answer can have a tensor of this name."""
        names = [tensor.name for tensor in self.outputs]
        unknown = [sink.name for sink in self.sinks if not self.outputs_of(sink.name)]
        return output in names or any(output == name or output.startswith(f"{name}.") for name in unknown)

    def _one_row(self, name: str) -> bool:
        if self.modules[name].optional:
            return False
        upstreams = [edge for edge in self.session.edges if edge.target == name]
        is_function = self.modules[name].function is not None
        waits = self.modules[name].join is Join.ALL
        if not upstreams or (is_function and waits and len(upstreams) > 1):
            return True
        if len(upstreams) > 1 or upstreams[0].when is not None or not self._one_row(upstreams[0].source):
            return False
        return is_function or (self.modules[upstreams[0].source].function is None and upstreams[0].fan_out.max == 1)


def _common(outputs: Sequence[TensorSpec]) -> SampleOutput:
    """One output of several size classes."""
    sizes = zip(*(output.shape for output in outputs), strict=False)
    return SampleOutput(outputs[0].dtype, tuple(size[0] if len(set(size)) == 1 else -1 for size in sizes))


def output_names(module: str, count: int) -> list[str]:
    """Names of a sink model's output tensors: the module's name alone if there is one."""
    return [module] if count == 1 else [f"{module}.{k}" for k in range(count)]


def answered_name(module: str) -> str:
    """Name of the tensor that says for each sample of a request whether the answer of an optional module is in it."""
    return f"{module}.answered"


def index_name(module: str) -> str:
    """Name of the tensor with the sample of each row of a sink's outputs."""
    return f"{module}.index"
