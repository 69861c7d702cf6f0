"""The layers of an ONNX graph, and its parts between cuts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from partita_api.session.module import Inputs, TensorSpec, names_of, specs_of
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.layers import (
    NOMINAL_BATCH,
    NUMPY_DTYPES,
    Dependence,
    Layer,
    SampleTensor,
    Work,
    can_cross,
    cheapest_end,
    live_values,
    output_sample,
)
from partita_runtime.models.onnx.module import OnnxModule
from partita_runtime.models.onnx.nodes import (
    SHAPE_FROM_DATA,
    Shape,
    flops,
    integer,
    operands,
    shape_operands,
    vocabularies,
)
from partita_runtime.models.onnx.observation import BATCHES, ObservedValue, observed

_BATCH = "partita/batch"
"""The batch size in a part, as a tensor of one number."""


@dataclass(frozen=True)
class OnnxGraph:
    """A graph with its layers."""

    model: ModelProto
    weights: Mapping[str, torch.Tensor]
    values: Mapping[str, ObservedValue]
    dependence: Mapping[str, Dependence]
    nodes: tuple[NodeProto, ...]
    """The operations on data, in order."""
    live: tuple[tuple[str, ...], ...]
    """At index i, the values on data that exist before node i and that it or a later one reads."""
    ends: tuple[int, ...]
    """Layer i is nodes[ends[i - 1]:ends[i]]."""
    layers: tuple[Layer, ...]
    output_samples: tuple[SampleTensor, ...]
    output_names: tuple[str, ...]
    vocabularies: tuple[int, ...]
    """See `PartitionedModel`."""
    structure: tuple[object, ...]
    """Operations, operands and shapes as JSON data, without names and weights."""

    def blocks(self, ends: Sequence[int]) -> tuple[OnnxModule, ...]:
        """Block k computes the layers [ends[k - 1], ends[k])."""
        positions = [0, *(self.ends[end - 1] for end in ends)]
        return tuple(self._block(start, end) for start, end in pairwise(positions))

    def _block(self, start: int, end: int) -> OnnxModule:
        last = end == len(self.nodes)
        outputs = tuple(v.name for v in self.model.graph.output) if last else self.live[end]
        part = _Part(self, self.live[start])
        for node in self.nodes[start:end]:
            part.add(node)
        peak = max(
            sum(self.values[name].bytes for name in (*self.live[i], *self.nodes[i].output) if name in self.values)
            for i in range(start, end)
        )
        model = part.model(outputs)
        weights = {t.name: self.weights[t.name] for t in model.graph.initializer if t.name in self.weights}
        return OnnxModule(model, weights, activation_bytes=peak)


def layered_onnx(whole: OnnxModule, inputs: Inputs) -> OnnxGraph:
    """The layers of a model. Raises ModelError if it does not work on its inputs."""
    model = with_inputs(whole.model, inputs)
    graph = model.graph
    entries, outputs = (tuple(value.name for value in values) for values in (graph.input, graph.output))
    values = {**observed(model, whole.weights, inputs), **_given(graph, inputs)}
    samples, dependence = _samples(graph, values)
    nodes = tuple(node for node in graph.node if dependence[node.output[0]] is Dependence.DATA)
    last_use = {name: i for i, node in enumerate(nodes) for name in operands(node)}
    last_use.update((name, len(nodes)) for name in outputs)
    live = live_values(entries, [tuple(node.output) for node in nodes], last_use)
    shapes = {name: value.shapes[-1] for name, value in values.items()}
    flops_of = [_flops(node, shapes) * NOMINAL_BATCH // BATCHES[-1] for node in nodes]

    def crossing(end: int) -> tuple[SampleTensor, ...] | None:
        crossed = [samples.get(name) for name in live[end]]
        return tuple(s for s in crossed if s is not None) if can_cross(crossed) else None

    computing = [i for i, count in enumerate(flops_of) if count]
    ends = (*(cheapest_end(a, b, crossing) for a, b in pairwise(computing)), len(nodes))
    work = [_work(node, values, count) for node, count in zip(nodes, flops_of, strict=True)]
    layers = tuple(
        Layer(nodes[start].name or nodes[start].output[0], sum(work[start:end], Work()), crossing(end))
        for start, end in pairwise((0, *ends))
    )
    answered = [values[name].sample if name in values else None for name in outputs]
    return OnnxGraph(
        model=model,
        weights=whole.weights,
        values=values,
        dependence=dependence,
        nodes=nodes,
        live=live,
        ends=ends,
        layers=layers,
        output_samples=tuple(output_sample(sample, i) for i, sample in enumerate(answered)),
        output_names=outputs,
        vocabularies=vocabularies(graph),
        structure=tuple(_structure(nodes, values)),
    )


def with_inputs(model: ModelProto, inputs: Inputs) -> ModelProto:
    """The model with its inputs in the order and shapes of `inputs`. Raises ModelError if it takes something else."""
    names = names_of(inputs)
    entries = {value.name: value for value in _entries(model.graph)}
    if (names and entries.keys() != {*names}) or (not names and len(entries) != 1):
        expected = ", ".join(names) or "one tensor; declare inputs of the module"
        raise _bad_input(f"it takes {', '.join([*entries][:8]) or 'nothing'}, not {expected}")
    fixed = ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.input[:], fixed.graph.value_info[:]
    for name, spec in zip(names or entries, specs_of(inputs), strict=True):
        element = _checked_element(entries[name], spec)
        fixed.graph.input.append(helper.make_tensor_value_info(name, element, ["batch", *spec.shape]))
    for output in fixed.graph.output:
        output.type.tensor_type.ClearField("shape")
    return fixed


def _checked_element(entry: ValueInfoProto, spec: TensorSpec) -> int:
    """The element type of an input of the graph. Raises ModelError unless it takes `spec`."""
    tensor = entry.type.tensor_type
    want = helper.np_dtype_to_tensor_dtype(NUMPY_DTYPES[spec.dtype])
    if tensor.elem_type != want:
        name = helper.tensor_dtype_to_string(tensor.elem_type).removeprefix("TensorProto.")
        raise _bad_input(
            f"its input {entry.name} has elements of type {name}, not {spec.dtype}; correct the module's input.dtype"
        )
    sizes = [max(0, dim.dim_value) for dim in tensor.shape.dim]  # 0 for a dynamic dimension
    if sizes and sizes[0]:
        raise _bad_input(
            f"it was exported for batches of {sizes[0]} only; export it with a dynamic batch dimension: "
            'torch.onnx.export(..., dynamic_shapes=({0: torch.export.Dim("batch")},))'
        )
    if tensor.HasField("shape") and (
        len(sizes) != len(spec.shape) + 1
        or any(size not in (0, n) for size, n in zip(sizes[1:], spec.shape, strict=True))
    ):
        takes = [size or "any" for size in sizes[1:]]
        raise _bad_input(f"its samples are {takes}, not {list(spec.shape)}; correct the module's input.shape")
    return want


def inputs_of(model: ModelProto) -> dict[str, tuple[list[int | None], str]]:
    """Sizes of one sample of each input, None for open ones, and numpy's name of its elements."""
    found = {}
    for entry in _entries(model.graph):
        tensor = entry.type.tensor_type
        sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
        found[entry.name] = sizes[1:], helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return found


def _entries(graph: GraphProto) -> list[ValueInfoProto]:
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _bad_input(problem: str) -> ModelError:
    return ModelError(ModelErrorReason.BAD_INPUT, f"the ONNX model does not fit the module: {problem}")


def _given(graph: GraphProto, inputs: Inputs) -> dict[str, ObservedValue]:
    """The inputs and the weights."""
    found = {
        entry.name: ObservedValue(NUMPY_DTYPES[spec.dtype].name, tuple((batch, *spec.shape) for batch in BATCHES))
        for entry, spec in zip(graph.input, specs_of(inputs), strict=True)
    }
    for tensor in graph.initializer:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        found[tensor.name] = ObservedValue(dtype, (tuple(tensor.dims),) * len(BATCHES))
    return found


def _samples(
    graph: GraphProto, values: Mapping[str, ObservedValue]
) -> tuple[dict[str, SampleTensor], dict[str, Dependence]]:
    """The values that consist of samples whatever their numbers are, and what every value depends on."""
    dependence = {tensor.name: Dependence.CONSTANT for tensor in graph.initializer}
    dependence |= {entry.name: Dependence.DATA for entry in graph.input}
    varying: set[str] = set()  # shapes that depend on numbers
    for node in graph.node:
        read = operands(node)
        depends = max((dependence[name] for name in read), default=Dependence.CONSTANT)
        if node.op_type == "Shape" and depends is Dependence.DATA and not varying.intersection(read):
            depends = Dependence.BATCH if linear_shape(values[read[0]]) is not None else depends
        dependence.update((name, depends) for name in node.output)
        from_numbers = any(dependence[name] is Dependence.DATA for name in shape_operands(node))
        if node.op_type in SHAPE_FROM_DATA or from_numbers or (node.op_type != "Shape" and varying.intersection(read)):
            varying.update(node.output)
    samples = {
        name: value.sample
        for name, value in values.items()
        if dependence.get(name) is Dependence.DATA and name not in varying and value.sample is not None
    }
    return samples, dependence


def linear_shape(value: ObservedValue) -> tuple[tuple[int, int], ...] | None:
    """Each dimension as (m, c): m times the batch size plus c, one of them 0; None if one is neither."""
    found = []
    for small, large in zip(*value.shapes, strict=True):
        multiple, rest = divmod(small, BATCHES[0])
        if small == large:
            found.append((0, small))
        elif not rest and large == multiple * BATCHES[1]:
            found.append((multiple, 0))
        else:
            return None
    return tuple(found)


def _flops(node: NodeProto, shapes: Mapping[str, Shape]) -> int:
    return flops(node, [shapes.get(name) for name in node.input if name], shapes.get(node.output[0]))


def _work(node: NodeProto, values: Mapping[str, ObservedValue], flop_count: int) -> Work:
    """One kernel that reads its operands and writes its result, at the nominal batch size."""
    moved = 0
    for name in (*operands(node), *node.output):
        if name in values:
            grows = values[name].shapes[0] != values[name].shapes[-1]
            moved += values[name].bytes * (NOMINAL_BATCH if grows else 1)
    return Work.of_operation(flop_count, moved)


def _structure(nodes: Sequence[NodeProto], values: Mapping[str, ObservedValue]) -> Iterator[object]:
    """One entry per node on data; values are numbers in order of appearance."""
    number: dict[str, int] = {}
    for node in nodes:
        attributes = sorted(
            (attribute.name, attribute.SerializeToString(deterministic=True).hex()) for attribute in node.attribute
        )
        named = [*node.input, *node.output]
        made = [values[name] for name in node.output if name in values]
        yield [
            node.domain,
            node.op_type,
            [list(attribute) for attribute in attributes],
            [number.setdefault(name, len(number)) for name in named],
            [[value.dtype, [list(shape) for shape in value.shapes]] for value in made],
        ]


class _Part:
    """The nodes of one block, with all that they need of weights and of the batch size."""

    def __init__(self, graph: OnnxGraph, inputs: Sequence[str]) -> None:
        self._graph = graph
        self._inputs = tuple(inputs)
        self._nodes: list[NodeProto] = []
        self._weights: list[str] = []
        self._known = {"", *inputs}
        self._maker = {name: node for node in graph.model.graph.node for name in node.output}

    def add(self, node: NodeProto) -> None:
        """Append a node, after what it reads."""
        for name in operands(node):
            self._provide(name)
        self._nodes.append(node)
        self._known.update(node.output)

    def model(self, outputs: Sequence[str]) -> ModelProto:
        """The part as a model of its own."""
        source = self._graph.model
        for name in outputs:
            self._provide(name)
        weights = {tensor.name: tensor for tensor in source.graph.initializer}
        declared = {value.name: value for value in source.graph.output}
        passed = {name: f"{name}/passed" for name in outputs if name in self._inputs}
        nodes = [*self._nodes, *(helper.make_node("Identity", [name], [new]) for name, new in passed.items())]
        graph = helper.make_graph(
            nodes,
            source.graph.name or "part",
            [self._declared(name) for name in self._inputs],
            [
                declared[name] if name in declared and name not in passed else self._declared(name, passed.get(name))
                for name in outputs
            ],
            [weights[name] for name in self._weights],
        )
        return helper.make_model(graph, opset_imports=source.opset_import, ir_version=source.ir_version)

    def _declared(self, name: str, new_name: str | None = None) -> ValueInfoProto:
        value = self._graph.values[name]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        return helper.make_tensor_value_info(new_name or name, element, ["batch", *value.shapes[-1][1:]])

    def _provide(self, name: str) -> None:
        """Make a value that depends on weights or the batch size only."""
        if name in self._known:
            return
        node = self._maker.get(name)
        if node is None:
            self._weights.append(name)
            self._known.add(name)
        elif node.op_type == "Shape" and self._graph.dependence[name] is Dependence.BATCH:
            self._provide_shape(node)
        else:
            self.add(node)

    def _provide_shape(self, node: NodeProto) -> None:
        """The shape of a value on data, from the batch size of this part: the value may be in another part."""
        if _BATCH not in self._known:
            self._nodes += [
                _constant(f"{_BATCH}/0", [0]),
                helper.make_node("Shape", [self._inputs[0]], [f"{_BATCH}/shape"]),
                helper.make_node("Gather", [f"{_BATCH}/shape", f"{_BATCH}/0"], [_BATCH], axis=0),
            ]
            self._known.add(_BATCH)
        (name,) = node.output
        terms = linear_shape(self._graph.values[node.input[0]])
        assert terms is not None  # else the shape depends on data
        rank = len(terms)
        terms = terms[slice(integer(node, "start", 0), integer(node, "end", rank))]
        self._nodes += [
            _constant(f"{name}/multiples", [multiple for multiple, _ in terms]),
            _constant(f"{name}/constants", [constant for _, constant in terms]),
            helper.make_node("Mul", [_BATCH, f"{name}/multiples"], [f"{name}/grown"]),
            helper.make_node("Add", [f"{name}/grown", f"{name}/constants"], [name]),
        ]
        self._known.add(name)


def _constant(name: str, numbers: Sequence[int]) -> NodeProto:
    value = helper.make_tensor(name, 7, [len(numbers)], numbers)  # 7: INT64
    return helper.make_node("Constant", [], [name], value=value)
