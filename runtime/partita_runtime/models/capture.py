"""Captures a module as a graph of operations for any batch size.

torch.export is tried first: its graph is functional (nothing is changed in place) with ATen operations. Modules that
cannot be exported are traced symbolically with torch.fx. Both can raise any error.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from partita_api.session.module import Inputs, TensorSpec, names_of, specs_of
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.standard_inputs import standard_inputs

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

_SAME_NUMBERS: Final = frozenset(
    {
        torch.ops.aten._to_copy.default,
        torch.ops.aten.clone.default,
        torch.ops.aten.reshape.default,
        torch.ops.aten.to.device,
        torch.ops.aten.to.dtype,
        torch.ops.aten.unsqueeze.default,
        torch.ops.aten.view.default,
    }
    | {"clone", "contiguous", "long", "reshape", "to", "unsqueeze", "view"}
)
"""Operations, and methods of traced graphs: their results have the numbers of their first operand, in another type or
shape."""


@dataclass(frozen=True)
class CapturedGraph:
    """A model as a graph."""

    module: GraphModule
    inputs: tuple[Node, ...]
    """In the order in which the session declares them."""
    answer: pytree.TreeSpec
    """What the model returns: the leaves are those of the graph's output."""
    functional: bool
    """Whether no operation changes its operands; else values that share memory must not be separated."""

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """For each input, how many rows the table has from which its numbers select; 0 for other numbers."""
        sources = {node: node for node in self.inputs}
        sizes = dict.fromkeys(self.inputs, 0)
        for node in self.module.graph.nodes:
            first = node.args[0] if node.args else None
            if (
                node.op.startswith("call_")
                and node.target in _SAME_NUMBERS
                and isinstance(first, Node)
                and first in sources
            ):
                sources[node] = sources[first]
            elif (selected := _selected(self.module, node)) is not None and selected[0] in sources:
                source = sources[selected[0]]
                sizes[source] = min(selected[1], sizes[source] or selected[1])
        return tuple(sizes.values())


def examples(inputs: Inputs, batch: int) -> list[torch.Tensor]:
    """The standard inputs as tensors."""
    return [torch.from_numpy(array) for array in standard_inputs(inputs, batch)]


def export_graph(model: torch.nn.Module, inputs: Inputs) -> CapturedGraph:
    """`model` by torch.export, with a dynamic batch dimension of 1 to MAX_BATCH."""
    sizes = {0: Dim("batch", min=1, max=MAX_BATCH)}
    tensors, names = examples(inputs, 2), names_of(inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and of the model: not useful to users
        program = (
            torch.export.export(
                model, (), dict(zip(names, tensors, strict=True)), dynamic_shapes=dict.fromkeys(names, sizes)
            )
            if names
            else torch.export.export(model, tuple(tensors), dynamic_shapes=(sizes,))
        )
        return exported_graph(program, inputs)


def exported_graph(program: ExportedProgram, inputs: Inputs) -> CapturedGraph:
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
    return CapturedGraph(module, _in_order(module, inputs), program.call_spec.out_spec, functional=True)


def traced_graph(model: torch.nn.Module, inputs: Inputs) -> CapturedGraph:
    """`model` by symbolic tracing; operations may work in place."""
    module = torch.fx.symbolic_trace(model)
    answer = pytree.tree_structure(module.graph.output_node().args[0])
    return CapturedGraph(module, _in_order(module, inputs), answer, functional=False)


def _selected(module: GraphModule, node: Node) -> tuple[Node, int] | None:
    """The numbers with which an embedding selects rows of its table, and how many rows there are."""
    if node.op == "call_module":
        layer, numbers = module.get_submodule(str(node.target)), node.args[0] if node.args else None
        if isinstance(layer, torch.nn.Embedding) and isinstance(numbers, Node):
            return numbers, layer.num_embeddings
        return None
    if node.target is not torch.ops.aten.embedding.default:
        return None
    table, numbers = node.args[:2]
    if not (isinstance(table, Node) and table.op == "get_attr" and isinstance(numbers, Node)):
        return None
    owner, _, name = str(table.target).rpartition(".")
    return numbers, getattr(module.get_submodule(owner), name).shape[0]


def leaf_names(answer: pytree.TreeSpec) -> list[str]:
    """Names of the leaves of a model's answer: the keys of a mapping, "" in any other structure.

    Something with several leaves has the names KEY.0, KEY.1 and so on.
    """
    if not (isinstance(answer.type, type) and issubclass(answer.type, Mapping) and isinstance(answer.context, list)):
        return [""] * answer.num_leaves
    names: list[str] = []
    for key, part in zip(answer.context, answer.children(), strict=True):
        names += [str(key)] if part.is_leaf() else [f"{key}.{number}" for number in range(part.num_leaves)]
    return names


def _in_order(module: GraphModule, inputs: Inputs) -> tuple[Node, ...]:
    """The graph's inputs in the order of `inputs`. Raises ValueError if they are others."""
    found, names = module.graph.find_nodes(op="placeholder"), names_of(inputs)
    by_name = {str(node.target): node for node in found}
    if names and by_name.keys() == {*names}:
        return tuple(by_name[name] for name in names)
    if names or len(found) != 1:
        expected = f"not {', '.join(names)}" if names else "not one tensor"
        raise ValueError(f"the model takes {len(found)} inputs ({', '.join(by_name)}), {expected}")
    return tuple(found)


def check_exported_inputs(program: ExportedProgram, inputs: Inputs) -> None:
    """Raises ModelError unless the program takes these tensors with a dynamic batch dimension."""
    given = exported_inputs(program)
    names = names_of(inputs)
    if (names and given.keys() != {*names}) or (not names and len(given) != 1):
        expected = f"not {', '.join(names)}" if names else "not one tensor"
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"the exported model takes {', '.join(given) or 'nothing'}, {expected}; correct the module's inputs",
        )
    for name, spec in zip(names or given, specs_of(inputs), strict=True):
        _check_exported_input(given[name], spec)


def exported_inputs(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The inputs of an exported program by name, as fake tensors. Raises ModelError for something else than tensors."""
    names = program.graph_signature.user_inputs
    found = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder" and n.name in names}
    if not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise ModelError(
            ModelErrorReason.BAD_INPUT, "the exported model takes something else than tensors; export one without it"
        )
    return found


def _check_exported_input(value: torch.Tensor, spec: TensorSpec) -> None:
    shape = value.shape
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
