"""What a node of an ONNX graph reads, contains and computes."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

SHAPE_FROM_DATA: Final = frozenset({"NonZero", "NonMaxSuppression", "Unique", "Compress", "If", "Loop", "Scan"})
"""The shape of what they return depends on the numbers in their operands."""
SHAPE_FROM_OPERAND: Final = frozenset(
    {"Reshape", "Expand", "Slice", "Range", "ConstantOfShape", "Tile", "Pad", "Resize", "Upsample", "TopK", "OneHot"}
    | {"Squeeze", "Unsqueeze", "Split"}
)
"""The shape of what they return depends on the numbers in their operands behind the first one."""
_FROM_FIRST_OPERAND: Final = frozenset({"ConstantOfShape", "Range"})

_SAME_NUMBERS: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""What they return has the numbers of their first operand, in another type or shape."""

Shape = tuple[int, ...]


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of the graph, and those of the graphs in them (the bodies of loops and branches)."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The weights and constants of the graph, and those of the graphs in its nodes."""
    yield from graph.initializer
    yield from (sparse.values for sparse in graph.sparse_initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in inner_graphs(node):
            yield from all_tensors(inner)


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """The bodies of a loop or a branch."""
    found = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            found.extend(attribute.graphs)
    return found


def operands(node: NodeProto) -> list[str]:
    """Names of the values that the node reads, also those that only its inner graphs read."""
    names = dict.fromkeys(name for name in node.input if name)
    for inner in inner_graphs(node):
        names.update(dict.fromkeys(_free_names(inner)))
    return list(names)


def shape_operands(node: NodeProto) -> list[str]:
    """The operands whose numbers decide the shape of what the node returns."""
    if node.op_type not in SHAPE_FROM_OPERAND:
        return []
    return [name for name in node.input[node.op_type not in _FROM_FIRST_OPERAND :] if name]


def flops(node: NodeProto, inputs: Sequence[Shape | None], output: Shape | None) -> int:
    """Multiplications and additions of a node that computes; 0 for all others, or if a shape is not known."""
    known = [shape for shape in inputs if shape is not None]
    if len(known) < 2 or output is None:
        return 0
    first, second = known[:2]
    match node.op_type:
        case "Conv" | "FusedConv" | "ConvInteger":
            return 2 * prod(output) * prod(second[1:])
        case "QLinearConv":  # scale and zero point of the input are before the weights
            return 2 * prod(output) * prod(known[3][1:]) if len(known) > 3 else 0
        case "ConvTranspose":
            return 2 * prod(first) * prod(second[1:])
        case "MatMul" | "FusedMatMul" | "MatMulInteger" | "QLinearMatMul" | "Attention" | "MultiHeadAttention":
            return 2 * prod(output) * first[-1]
        case "Gemm":
            return 2 * prod(output) * first[0 if integer(node, "transA", 0) else 1]
        case "LSTM" | "GRU" | "RNN":
            return 2 * prod(first[:-1]) * sum(prod(shape) for shape in known[1:3])
    return 0


def vocabularies(graph: GraphProto) -> tuple[int, ...]:
    """For each input, how many rows the table has from which its numbers select; 0 for other numbers."""
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    sizes = {entry.name: 0 for entry in graph.input if entry.name not in tables}
    sources = {name: name for name in sizes}
    for node in graph.node:
        if node.op_type in _SAME_NUMBERS and node.input[0] in sources:
            sources[node.output[0]] = sources[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in tables and node.input[1] in sources:
            source, rows = sources[node.input[1]], tables[node.input[0]][integer(node, "axis", 0)]
            sizes[source] = min(rows, sizes[source] or rows)
    return tuple(sizes.values())


def integer(node: NodeProto, name: str, default: int) -> int:
    """An attribute of the node."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _free_names(graph: GraphProto) -> list[str]:
    """Values of the graphs around it that the graph reads."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    free = []
    for node in graph.node:
        free += [name for name in operands(node) if name not in bound]
        bound.update(node.output)
    return [*free, *(value.name for value in graph.output if value.name not in bound)]
