"""Cuts a layered graph into graph modules."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from partita_runtime.models.graph_layers import LayeredGraph
from partita_runtime.models.layers import Dependence
from partita_runtime.models.onnx.module import OnnxModule

LITERALS = (bool, int, float, str, tuple, type(None), torch.dtype, torch.device)
"""Constants written into a block's code; all others are its attributes."""


def cut_blocks(graph: LayeredGraph, ends: Sequence[int]) -> tuple[GraphModule, ...]:
    """Block k holds the layers [ends[k - 1], ends[k]). Its parameters are the tensors that cross before it.

    It returns the tuple of those that cross after it; the last block returns the model's output tensors.
    """
    constants = _Constants(graph)
    blocks = []
    inputs = graph.inputs
    start = 0
    for layer_end in ends:
        end = graph.ends[layer_end - 1]
        outputs = graph.outputs if end == len(graph.nodes) else graph.crossing[layer_end - 1]
        blocks.append(_BlockBuilder(graph, constants, inputs).build(graph.nodes[start:end], outputs))
        inputs, start = outputs, end
    return tuple(blocks)


def move_block(block: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """`block` with its weights, and the tensors that it creates, on `device`.

    ONNX Runtime moves the weights of an `OnnxModule` itself.
    """
    if isinstance(block, OnnxModule):
        return block
    if isinstance(block, GraphModule):
        for node in block.graph.nodes:
            if node.op == "call_function" and node.kwargs.get("device") is not None:
                node.kwargs = {**node.kwargs, "device": device}
        block.recompile()
    return block.to(device)


class _Constants:
    """Values that depend on weights only, each computed at its first use."""

    def __init__(self, graph: LayeredGraph) -> None:
        self._module = graph.module
        self._interpreter = torch.fx.Interpreter(graph.module, garbage_collect_values=False)

    def value(self, node: Node) -> Any:
        env = self._interpreter.env
        if node not in env:
            for operand in node.all_input_nodes:
                self.value(operand)
            with torch.no_grad():
                env[node] = self._interpreter.run_node(node)
        return env[node]


class _BlockBuilder:
    """Builds the graph module of one block."""

    def __init__(self, graph: LayeredGraph, constants: _Constants, inputs: Sequence[Node]) -> None:
        self._source = graph
        self._constants = constants
        self._graph = Graph()
        self._attributes: dict[str, Any] = {}
        entries = [self._graph.placeholder(f"crossing_{i}") for i in range(len(inputs))]
        self._first_input = entries[0]
        self._batch: Node | None = None
        self._copies: dict[Node, Any] = {
            node: self._folded(entry) if node in graph.folds else entry
            for node, entry in zip(inputs, entries, strict=True)
        }

    def build(self, body: Sequence[Node], outputs: Sequence[Node]) -> GraphModule:
        for node in body:
            self._copies[node] = self._copy_operation(node)
        self._graph.output(tuple(self._unfolded(node) for node in outputs))
        self._graph.lint()
        return GraphModule(self._attributes, self._graph, class_name="Block")

    def _folded(self, entry: Node) -> Node:
        """[batch, multiple, ...] as [batch * multiple, ...]."""
        return self._graph.call_function(torch.ops.aten.flatten.using_ints, (entry, 0, 1))

    def _unfolded(self, node: Node) -> Any:
        """The copy of `node` with the batch size as its leading dimension."""
        if node not in self._source.folds:
            return self._copy(node)
        sizes = [-1, self._source.folds[node]]
        return self._graph.call_function(torch.ops.aten.unflatten.int, (self._copy(node), 0, sizes))

    def _copy(self, node: Node) -> Any:
        """The copy of `node` in this block."""
        if node not in self._copies:
            self._copies[node] = self._rebuild(node)
        return self._copies[node]

    def _rebuild(self, node: Node) -> Any:
        if self._source.dependence[node] is Dependence.CONSTANT:
            return self._constant(node)
        if node in self._source.batch_multiples:
            return self._batch_size(self._source.batch_multiples[node])
        return self._copy_operation(node)

    def _copy_operation(self, node: Node) -> Node:
        if node.op == "call_module":
            self._attributes[str(node.target)] = self._source.module.get_submodule(str(node.target))
        operands = map_arg(node.args, self._copy), map_arg(node.kwargs, self._copy)
        return self._graph.create_node(node.op, node.target, *operands, name=node.name)

    def _constant(self, node: Node) -> Any:
        value = self._constants.value(node)
        if isinstance(value, LITERALS):
            return value
        name = f"constant_{len(self._attributes)}"
        self._attributes[name] = value
        return self._graph.get_attr(name)

    def _batch_size(self, multiple: int) -> Any:
        """`multiple` times the batch size, taken from the block's first input."""
        if self._batch is None:
            self._batch = self._graph.call_function(torch.ops.aten.sym_size.int, (self._first_input, 0))
        if multiple == 1:
            return self._batch
        return self._graph.call_function(operator.mul, (self._batch, multiple))
