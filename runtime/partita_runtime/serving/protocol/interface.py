"""The input and output tensors of a session, as a client of the Open Inference Protocol sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.module import ImageInput, Module, TensorSpec

MAX_SAMPLES: Final = 64
"""Most samples in one request."""


@dataclass(frozen=True)
class OutputTensor:
    """The name, element type and shape of one output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """Its first dimension is -1: the number of rows depends on the request."""


@dataclass(frozen=True, eq=False)
class Interface:
    """The tensors of a session. All have a leading dimension: samples in a request, rows in an answer.

    It is compared by identity, so it can be the key of a cache.
    """

    model_name: str
    """The session's name, which is the protocol's model name."""
    session: InferenceSessionSpec
    model_outputs: Mapping[str, Sequence[TensorSpec]]
    """The outputs of each model for one sample, if they are known."""

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
        """The tensors of a request, by name: `input`, or the root's name if several roots have an input."""
        takers = [(root.name, root.input) for root in self.roots if root.input is not None]
        return {name if len(takers) > 1 else "input": spec for name, spec in takers}

    @cached_property
    def images(self) -> Mapping[str, ImageInput]:
        """How JPEG and PNG images become inputs, by the tensor's name, for inputs that accept images."""
        declared = {self.input_name(root.name): root.image for root in self.roots}
        return {name: image for name, image in declared.items() if image is not None}

    def input_name(self, root: str) -> str:
        """The name of the input of a root module."""
        return root if root in self.inputs else "input"

    @cached_property
    def outputs(self) -> tuple[OutputTensor, ...]:
        """The tensors of an answer that are known in advance. Those of functions are not."""
        known: list[OutputTensor] = []
        for sink in self.sinks:
            specs = self.model_outputs.get(sink.name, ())
            names = output_names(sink.name, len(specs))
            known += [
                OutputTensor(name, spec.dtype.value, (-1, *spec.shape)) for name, spec in zip(names, specs, strict=True)
            ]
            if sink.name in self.indexed:
                known.append(OutputTensor(index_name(sink.name), "INT64", (-1,)))
        return tuple(known)

    @cached_property
    def indexed(self) -> frozenset[str]:
        """Sinks that can have no row or several rows for a sample; their answers need an index."""
        return frozenset(sink.name for sink in self.sinks if not self._one_row(sink.name))

    def may_give(self, output: str) -> bool:
        """Whether an answer can have a tensor of this name."""
        names = [tensor.name for tensor in self.outputs]
        unknown = [sink.name for sink in self.sinks if not self.model_outputs.get(sink.name)]
        return output in names or any(output == name or output.startswith(f"{name}.") for name in unknown)

    def _one_row(self, name: str) -> bool:
        upstreams = [edge for edge in self.session.edges if edge.target == name]
        is_function = self.modules[name].function is not None
        if not upstreams or (is_function and len(upstreams) > 1):
            return True
        if len(upstreams) > 1 or not self._one_row(upstreams[0].source):
            return False
        return is_function or (self.modules[upstreams[0].source].function is None and upstreams[0].fan_out.max == 1)


def output_names(module: str, count: int) -> list[str]:
    """Names of a sink model's output tensors: the module's name alone if there is one."""
    return [module] if count == 1 else [f"{module}.{k}" for k in range(count)]


def index_name(module: str) -> str:
    """Name of the tensor with the sample of each row of a sink's outputs."""
    return f"{module}.index"
