"""Which tensors a session takes and gives: its DAG, seen from a client of the Open Inference Protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module import ImageInput, Module, TensorSpec

MAX_SAMPLES: Final = 64
"""Most samples in one request."""


@dataclass(frozen=True)
class OutputTensor:
    """One tensor of an answer, as far as it is known beforehand."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """Its first dimension is -1: how many rows there are depends on the request."""


@dataclass(frozen=True, eq=False)
class Interface:
    """The tensors of a session. All have a leading dimension: samples in a request, rows in an answer.

    Each equals itself only, so that what is known of it can be kept.
    """

    model_name: str
    """The session's name, which is the protocol's model name."""
    session: InferenceSessionSpec
    model_outputs: Mapping[str, Sequence[TensorSpec]]
    """What each model answers for one sample, as far as it is known."""

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        """The modules by name."""
        return {module.name: module for module in self.session.modules}

    @cached_property
    def roots(self) -> tuple[Module, ...]:
        """Modules without an incoming edge: they begin with the request's tensors."""
        targets = {edge.target for edge in self.session.edges}
        return tuple(module for module in self.session.modules if module.name not in targets)

    @cached_property
    def sinks(self) -> tuple[Module, ...]:
        """Modules without an outgoing edge: what they answer is the request's answer."""
        sources = {edge.source for edge in self.session.edges}
        return tuple(module for module in self.session.modules if module.name not in sources)

    @cached_property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The tensors of a request, by name: `input`, or the root's name where several roots take one."""
        takers = [(root.name, root.input) for root in self.roots if root.input is not None]
        return {name if len(takers) > 1 else "input": spec for name, spec in takers}

    @cached_property
    def images(self) -> Mapping[str, ImageInput]:
        """How JPEG and PNG images become inputs, for those that may be sent so, by the tensor's name."""
        declared = {self.input_name(root.name): root.image for root in self.roots}
        return {name: image for name, image in declared.items() if image is not None}

    def input_name(self, root: str) -> str:
        """The tensor that the root module of this name begins with."""
        return root if root in self.inputs else "input"

    @cached_property
    def outputs(self) -> tuple[OutputTensor, ...]:
        """The tensors of an answer that are known beforehand; what a function answers is not."""
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
        """Sinks that may answer a sample in no row or in several, so that each row needs its sample's number."""
        return frozenset(sink.name for sink in self.sinks if not self._one_row(sink.name))

    def may_give(self, output: str) -> bool:
        """Whether an answer may hold a tensor of this name."""
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
        return is_function or (self.modules[upstreams[0].source].model is not None and upstreams[0].fan_out.max == 1)


def output_names(module: str, count: int) -> list[str]:
    """Names of a sink model's output tensors: the module's name alone if there is one."""
    return [module] if count == 1 else [f"{module}.{k}" for k in range(count)]


def index_name(module: str) -> str:
    """Name of the tensor that says which sample each row of a sink's outputs is from."""
    return f"{module}.index"
