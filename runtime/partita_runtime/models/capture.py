"""Captures a module as a graph of operations for any batch size.

torch.export is tried first: its graph is functional (nothing is changed in place) with ATen operations. Modules that
cannot be exported are traced symbolically with torch.fx. Both can raise any error.
"""

import warnings
from dataclasses import dataclass
from typing import Final

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Graph, GraphModule, Node

from partita_api.session.module import TensorSpec
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.standard_inputs import standard_input

MAX_BATCH: Final = 1024
"""The largest batch size of a captured graph."""

_NEW_VALUES: Final = frozenset(
    {
        torch.ops.aten.add.Tensor,
        torch.ops.aten.batch_norm.default,
        torch.ops.aten.conv1d.default,
        torch.ops.aten.conv2d.default,
        torch.ops.aten.conv3d.default,
        torch.ops.aten.group_norm.default,
        torch.ops.aten.layer_norm.default,
        torch.ops.aten.linear.default,
        torch.ops.aten.mul.Tensor,
    }
)
"""Operations before in-place ones in common models. Their results share memory with nothing."""


@dataclass(frozen=True)
class CapturedGraph:
    """A model as a graph with one input."""

    module: GraphModule
    functional: bool
    """Whether no operation changes its operands; else values that share memory must not be separated."""


def example(spec: TensorSpec, batch: int) -> torch.Tensor:
    """The standard input as a tensor."""
    return torch.from_numpy(standard_input(spec, batch))


def export_graph(model: torch.nn.Module, spec: TensorSpec) -> CapturedGraph:
    """`model` by torch.export, with a dynamic batch dimension of 1 to MAX_BATCH."""
    batch = Dim("batch", min=1, max=MAX_BATCH)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and of the model: not useful to users
        return exported_graph(torch.export.export(model, (example(spec, 2),), dynamic_shapes=({0: batch},)))


def exported_graph(program: ExportedProgram) -> CapturedGraph:
    """The graph of an exported program, without dropouts and assertions."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _drop_dropouts(program.graph)
        _replace_in_place_operations(program.graph)
        program.graph_module.recompile()
        if any(map(_works_in_place, program.graph.nodes)):
            program = program.run_decompositions({})  # An empty table replaces in-place operations only, but slowly.
        module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    _drop_assertions(module.graph)
    module.recompile()
    return CapturedGraph(module, functional=True)


def traced_graph(model: torch.nn.Module) -> CapturedGraph:
    """`model` by symbolic tracing; operations may work in place."""
    return CapturedGraph(torch.fx.symbolic_trace(model), functional=False)


def check_exported_input(program: ExportedProgram, spec: TensorSpec) -> None:
    """Raises ModelError unless the program takes one tensor of `spec` with a dynamic batch dimension."""
    names = set(program.graph_signature.user_inputs)
    inputs = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    if len(inputs) != 1 or not isinstance(inputs[0], torch.Tensor):
        raise ModelError(
            ModelErrorReason.BAD_INPUT, f"the exported model takes {len(inputs)} inputs; export one that takes a tensor"
        )
    shape = inputs[0].shape
    if shape and isinstance(shape[0], int):
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"the model was exported for batches of {shape[0]} only; export it with a dynamic batch dimension: "
            'dynamic_shapes=({0: Dim("batch")},)',
        )
    if [str(size) for size in shape[1:]] != [str(size) for size in spec.shape]:
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"the model was exported for samples of {[str(s) for s in shape[1:]]}, not {list(spec.shape)}; "
            "correct the module's input",
        )


def _drop_dropouts(graph: Graph) -> None:
    """In eval mode a dropout returns its input; functionalization would add a copy."""
    aten = torch.ops.aten
    dropouts = (aten.dropout.default, aten.dropout_.default, aten.feature_dropout.default)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in dropouts and not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _replace_in_place_operations(graph: Graph) -> None:
    """Compute new values instead where no other code can read the changed one, as after a convolution or a norm.

    `run_decompositions` replaces all others. It takes as long as the export, and most models need none of it then.
    """
    for node in graph.nodes:
        if _works_in_place(node) and isinstance(node.args[0], Node):
            changed, schema = node.args[0], node.target._schema
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
            if changed.target in _NEW_VALUES and len(changed.users) == 1 and packet is not None:
                node.target = getattr(packet, schema.overload_name or "default")


def _works_in_place(node: Node) -> bool:
    """Whether the node changes one of its operands."""
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _drop_assertions(graph: Graph) -> None:
    """Remove assertions: they contain the device of the export."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and "_assert" in str(node.target):
            graph.erase_node(node)
    graph.eliminate_dead_code()
