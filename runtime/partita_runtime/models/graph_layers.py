"""The layers of a captured graph: dependencies, costs, and the tensors that cross each cut.

Shapes and costs come from two runs of the graph on fake tensors with two batch sizes: nothing is computed, and the
comparison shows which dimensions grow with the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from partita_api.session.module import Inputs
from partita_runtime.models.capture import CapturedGraph, examples, leaf_names
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.layers import (
    NOMINAL_BATCH,
    Dependence,
    Layer,
    SampleTensor,
    Work,
    can_cross,
    cheapest_end,
    live_values,
    output_sample,
)

PROBE_BATCH: Final = 2
"""The second batch size; not 0 or 1, which broadcasting treats specially."""


@dataclass(frozen=True)
class LayeredGraph:
    """A captured graph with its layers."""

    module: GraphModule
    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    """The operations on data, in order."""
    outputs: tuple[Node, ...]
    output_samples: tuple[SampleTensor, ...]
    output_names: tuple[str, ...]
    """The model's own names; "" for an output without one."""
    vocabularies: tuple[int, ...]
    """See `PartitionedModel`."""
    dependence: Mapping[Node, Dependence]
    batch_multiples: Mapping[Node, int]
    """Values that are this multiple of the batch size."""
    folds: Mapping[Node, int]
    """Values whose leading dimension is this multiple of the batch size; they cross as [batch, multiple, ...]."""
    layers: tuple[Layer, ...]
    ends: tuple[int, ...]
    """Layer i is nodes[ends[i - 1]:ends[i]]."""
    crossing: tuple[tuple[Node, ...], ...]
    """Values on data that exist after layer i and are used later, in order."""
    structure: tuple[object, ...]
    """The graph's operations, operands and shapes as JSON data, the same in every process."""


def layered(captured: CapturedGraph, inputs: Inputs) -> LayeredGraph:
    """The layers of `captured`. Raises ModelError (BAD_OUTPUT), or any error of the fake execution."""
    module = captured.module
    seen = {batch: _observe(captured, inputs, batch) for batch in (PROBE_BATCH, NOMINAL_BATCH)}
    probe, nominal = seen[PROBE_BATCH], seen[NOMINAL_BATCH]
    samples = {node: _sample(probe[node], nominal[node]) for node in nominal}
    folds = {node: fold for node in nominal if (fold := _fold(probe[node], nominal[node])) > 1}
    multiples = {n: m for n in nominal if (m := _batch_multiple(n, probe[n], nominal[n])) is not None}
    dependence = _dependence(module, multiples)
    named = _outputs(captured, nominal)
    outputs = tuple(node for _, node in named)
    nodes = tuple(
        n
        for n in module.graph.nodes
        if dependence[n] is Dependence.DATA and n.op in ("call_function", "call_method", "call_module")
    )
    live = _live(captured.inputs, nodes, outputs)

    def crossing_samples(end: int) -> tuple[SampleTensor, ...] | None:
        crossed = [_unfolded(samples[node], folds.get(node)) for node in live[end]]
        legal = can_cross(crossed) and (captured.functional or not _share_memory(live[end], nominal))
        return tuple(s for s in crossed if s is not None) if legal else None

    computing = [i for i, node in enumerate(nodes) if nominal[node].flops]
    ends = (*(cheapest_end(a, b, crossing_samples) for a, b in pairwise(computing)), len(nodes))
    layers = tuple(
        Layer(
            name=nodes[start].name,
            work=sum((_work(node, nominal) for node in nodes[start:end]), Work()),
            crossing=crossing_samples(end),
        )
        for start, end in pairwise((0, *ends))
    )
    return LayeredGraph(
        module=module,
        inputs=captured.inputs,
        nodes=nodes,
        outputs=outputs,
        output_samples=tuple(
            output_sample(None if node in folds else samples[node], i) for i, node in enumerate(outputs)
        ),
        output_names=tuple(name for name, _ in named),
        vocabularies=captured.vocabularies,
        dependence=dependence,
        batch_multiples=multiples,
        folds=folds,
        layers=layers,
        ends=ends,
        crossing=tuple(live[end] for end in ends),
        structure=tuple(_structure(module, samples, nominal)),
    )


@dataclass(frozen=True)
class _ResultTensor:
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    storage: int


@dataclass(frozen=True)
class _NodeResult:
    """The result of one node in a fake run."""

    tensors: tuple[_ResultTensor, ...]
    is_tensor: bool
    number: int | None
    flops: int


class _Observer(Interpreter):
    """Runs a graph and records the result of every node."""

    def __init__(self, module: GraphModule, counter: FlopCounterMode) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.counter = counter
        self.seen: dict[Node, _NodeResult] = {}
        self.alive: list[Any] = []  # a released storage's identity could be used again

    def run_node(self, n: Node) -> Any:
        before = self.counter.get_total_flops()
        value = super().run_node(n)
        self.alive.append(value)
        tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        self.seen[n] = _NodeResult(
            tensors=tuple(
                _ResultTensor(
                    tuple(map(int, t.shape)),
                    str(t.dtype).removeprefix("torch."),
                    t.numel() * t.element_size(),
                    t.untyped_storage()._cdata,
                )
                for t in tensors
            ),
            is_tensor=isinstance(value, torch.Tensor),
            number=int(value) if isinstance(value, int) else None,
            flops=self.counter.get_total_flops() - before,
        )
        return value


def _observe(captured: CapturedGraph, inputs: Inputs, batch: int) -> dict[Node, _NodeResult]:
    # On CPU tensors attention becomes this operation, which torch's FLOP formulas lack.
    attention = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad(), fake_mode, FlopCounterMode(display=False, custom_mapping=attention) as counter:
        observer = _Observer(captured.module, counter)
        given = dict(zip(captured.inputs, map(fake_mode.from_tensor, examples(inputs, batch)), strict=True))
        placeholders = captured.module.graph.find_nodes(op="placeholder")
        observer.run(*(given[node] for node in placeholders), enable_io_processing=False)
    return observer.seen


def _attention_flops(query: torch.Size, key: torch.Size, value: torch.Size, *args: object, **kwargs: object) -> int:
    del args, kwargs  # dropout, causality and scale
    return sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call, no-any-return]


def _sample(probe: _NodeResult, nominal: _NodeResult) -> SampleTensor | None:
    """All dimensions but the leading one, if only that one grows, and with the batch size."""
    if not _fold(probe, nominal):
        return None
    tensor = nominal.tensors[0]
    return SampleTensor(tensor.shape[1:], tensor.dtype)


def _fold(probe: _NodeResult, nominal: _NodeResult) -> int:
    """The leading dimension divided by the batch size; 0 if it is not a multiple, or another dimension grows."""
    if not nominal.is_tensor or not nominal.tensors[0].shape:
        return 0
    small, large = probe.tensors[0].shape, nominal.tensors[0].shape
    multiple = small[0] // PROBE_BATCH
    grows = small[0] == multiple * PROBE_BATCH and large[0] == multiple * NOMINAL_BATCH
    return multiple if grows and small[1:] == large[1:] else 0


def _unfolded(sample: SampleTensor | None, fold: int | None) -> SampleTensor | None:
    return SampleTensor((fold, *sample.shape), sample.dtype) if sample and fold else sample


def _batch_multiple(node: Node, probe: _NodeResult, nominal: _NodeResult) -> int | None:
    if node.target is not torch.ops.aten.sym_size.int or probe.number is None or nominal.number is None:
        return None
    multiple, rest = divmod(probe.number, PROBE_BATCH)
    return multiple if not rest and multiple * NOMINAL_BATCH == nominal.number else None


def _dependence(module: GraphModule, multiples: Mapping[Node, int]) -> dict[Node, Dependence]:
    found: dict[Node, Dependence] = {}
    for node in module.graph.nodes:
        operands = max((found[n] for n in node.all_input_nodes), default=Dependence.CONSTANT)
        if node.op == "placeholder":
            found[node] = Dependence.DATA
        elif node in multiples:
            found[node] = min(operands, Dependence.BATCH)
        else:
            found[node] = operands
    return found


def _outputs(captured: CapturedGraph, seen: Mapping[Node, _NodeResult]) -> tuple[tuple[str, Node], ...]:
    """The tensors of the answer, with their names."""
    leaves = zip(
        leaf_names(captured.answer), pytree.tree_leaves(captured.module.graph.output_node().args[0]), strict=True
    )
    outputs = tuple((name, n) for name, n in leaves if isinstance(n, Node) and seen[n].is_tensor)
    if not outputs:
        raise ModelError(ModelErrorReason.BAD_OUTPUT, "the model returns no tensor; it must return at least one")
    return outputs


def _live(entries: tuple[Node, ...], nodes: Sequence[Node], outputs: Sequence[Node]) -> tuple[tuple[Node, ...], ...]:
    """At index i, the values that exist before node i and are used by it or later."""
    position = {node: i for i, node in enumerate(nodes)}
    last_use = {
        value: max((position[u] for u in value.users if u in position), default=-1) for value in (*entries, *nodes)
    }
    last_use.update((value, len(nodes)) for value in outputs)
    return live_values(entries, [(node,) for node in nodes], last_use)


def _share_memory(nodes: Sequence[Node], seen: Mapping[Node, _NodeResult]) -> bool:
    storages = [t.storage for node in nodes for t in seen[node].tensors]
    return len(set(storages)) < len(storages)


def _work(node: Node, seen: Mapping[Node, _NodeResult]) -> Work:
    """A view of an operand is free; other operations are one kernel that reads its operands and writes its result."""
    read = [t for operand in node.all_input_nodes for t in seen[operand].tensors]
    written = seen[node].tensors
    storages = {t.storage for t in read}
    in_memory = all(t.storage in storages for t in written)
    if not seen[node].flops and in_memory and node.op == "call_function":
        return Work()
    parameters = sum(p.numel() * p.element_size() for p in _submodule_parameters(node))
    return Work.of_operation(seen[node].flops, sum(t.bytes for t in (*read, *written)) + parameters)


def _submodule_parameters(node: Node) -> list[torch.nn.Parameter]:
    if node.op != "call_module":
        return []
    owner = node.graph.owning_module
    assert owner is not None
    return list(owner.get_submodule(str(node.target)).parameters())


def _structure(
    module: GraphModule, samples: Mapping[Node, SampleTensor | None], seen: Mapping[Node, _NodeResult]
) -> Iterator[object]:
    """One entry per node. Nodes are numbers and the batch size is a symbol, as names differ between processes."""
    number = {node: i for i, node in enumerate(module.graph.nodes)}

    def plain(argument: Any) -> object:
        if isinstance(argument, Node):
            return {"node": number[argument]}
        if isinstance(argument, (list, tuple)):
            return [plain(a) for a in argument]
        if isinstance(argument, dict):
            return {str(k): plain(v) for k, v in argument.items()}
        return argument if isinstance(argument, (int, float, str, bool, type(None))) else str(argument)

    for node in module.graph.nodes:
        target = node.target if isinstance(node.target, str) else torch.fx.node._get_qualified_name(node.target)
        sample = samples[node]
        shapes = ["batch", *sample.shape] if sample else [list(t.shape) for t in seen[node].tensors]
        yield [
            node.op,
            target if node.op in ("call_function", "call_method", "call_module") else "",
            plain(node.args),
            plain(node.kwargs),
            shapes,
            [t.dtype for t in seen[node].tensors],
        ]
