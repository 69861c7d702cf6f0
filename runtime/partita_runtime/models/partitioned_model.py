"""A model as a sequence of blocks, with the same cuts in every process and on every machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from partita_api.session.module import Inputs, ModelSource, TensorSpec, names_of, specs_of
from partita_planner.prepartitioning import prepartition
from partita_runtime.models.blocks import cut_blocks, move_block
from partita_runtime.models.capture import (
    CapturedGraph,
    check_exported_inputs,
    examples,
    export_graph,
    exported_graph,
    leaf_names,
    traced_graph,
)
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel
from partita_runtime.models.graph_layers import layered
from partita_runtime.models.layers import NUMPY_DTYPES, Layer, SampleTensor, Work, output_sample, partition_digest
from partita_runtime.models.onnx.module import OnnxModule
from partita_runtime.models.source import load_source


@dataclass(frozen=True)
class PartitionedModel:
    """Blocks 0 to n - 1, and the tensors that cross between them."""

    digest: str
    """Digest of operations, shapes and cuts, not of weights: the same for the same model everywhere."""
    blocks: tuple[torch.nn.Module | None, ...]
    """Each takes the tensors of one boundary and returns a tuple of those of the next one; None if it was not kept."""
    boundaries: tuple[tuple[SampleTensor, ...], ...]
    """Boundary 0 is the model's input, boundary k the cut before block k, the last one the model's outputs."""
    work: tuple[Work, ...]
    """Estimated work of each block, from which its share of the model's time follows."""
    output_names: tuple[str, ...]
    """The model's own names of its outputs; "" for one without a name."""
    vocabularies: tuple[int, ...] = ()
    """For each input, how many rows the table has from which its numbers select, as token ids do; 0 for other numbers.
    Empty for a model that was not captured."""
    warnings: tuple[str, ...] = ()
    uncut: OnnxModule | None = None
    """All blocks as one, which takes samples of every size that its file leaves open, for models of ONNX files."""

    @property
    def cuts(self) -> tuple[tuple[SampleTensor, ...], ...]:
        """The tensors that cross between neighbouring blocks."""
        return self.boundaries[1:-1]

    @property
    def is_onnx(self) -> bool:
        """Whether ONNX Runtime computes the blocks: their tensors are in the memory of the host on any device."""
        return any(isinstance(block, OnnxModule) for block in self.blocks)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's output tensors, for one sample."""
        return tuple(sample.answer for sample in self.boundaries[-1])

    def run(self, first: int, end: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run blocks [first, end) on the tensors that cross before `first`. Raises ModelError for missing blocks."""
        with torch.inference_mode():
            for index in range(first, end):
                tensors = self.block(index)(*tensors)
        return list(tensors)

    def block(self, index: int) -> torch.nn.Module:
        """One block. Raises ModelError if it is missing."""
        block = self.blocks[index] if 0 <= index < len(self.blocks) else None
        if block is None:
            raise ModelError(
                ModelErrorReason.NO_SUCH_BLOCKS,
                f"there is no block {index} here: of {len(self.blocks)}, {self._kept()}",
            )
        return block

    def keep(self, first: int, end: int) -> "PartitionedModel":
        """The same model with blocks [first, end) only; the weights of the others can be freed."""
        if not 0 <= first < end <= len(self.blocks):
            raise ModelError(
                ModelErrorReason.NO_SUCH_BLOCKS,
                f"blocks [{first}, {end}) were requested, but the model has {len(self.blocks)}; plan again",
            )
        return replace(
            self,
            blocks=tuple(block if first <= i < end else None for i, block in enumerate(self.blocks)),
            uncut=self.uncut if end - first == len(self.blocks) else None,
        )

    def to(self, device: torch.device) -> "PartitionedModel":
        """The same model with its blocks on `device`."""
        return replace(self, blocks=tuple(block and move_block(block, device) for block in self.blocks))

    def _kept(self) -> str:
        kept = [i for i, block in enumerate(self.blocks) if block is not None]
        return f"blocks {kept[0]} to {kept[-1]} were kept" if kept else "none was kept"


class WholeModel(torch.nn.Module):
    """An uncut model: from tensors in the order in which a session declares them, to the tensors of the answer."""

    def __init__(self, model: TorchModel, inputs: Inputs) -> None:
        super().__init__()
        self._inputs = inputs
        self._order: Sequence[str] = ()
        """The order in which the model takes its inputs; empty if it takes them by name."""
        self._arguments: pytree.TreeSpec | None = None
        """How they become its arguments, if it was exported."""
        self.model: torch.nn.Module
        if isinstance(model, ExportedProgram):
            self.model = model.module(check_guards=False)
            self._order, self._arguments = model.graph_signature.user_inputs, model.call_spec.in_spec
        else:
            self.model = model
            self._order = model.input_names if isinstance(model, OnnxModule) else ()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The answer for one batch."""
        leaves = pytree.tree_leaves(self._answer(tensors))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

    def output_names(self) -> tuple[str, ...]:
        """The model's own names of its outputs, from a run; "" for one without a name."""
        if isinstance(self.model, OnnxModule):
            return self.model.output_names
        with torch.inference_mode():
            leaves, answer = pytree.tree_flatten(self._answer(examples(self._inputs, 1)))
        named = zip(leaf_names(answer), leaves, strict=True)
        return tuple(name for name, leaf in named if isinstance(leaf, torch.Tensor))

    def _answer(self, tensors: Sequence[torch.Tensor]) -> Any:
        names = names_of(self._inputs)
        if not names:
            return self.model(*tensors)
        named = dict(zip(names, tensors, strict=True))
        if not self._order:
            return self.model(**named)
        given = [named[name] for name in self._order]
        args, kwargs = (given, {}) if self._arguments is None else pytree.tree_unflatten(given, self._arguments)
        return self.model(*args, **kwargs)


def partition_source(
    source: ModelSource, inputs: Inputs, blocks: int, *, content: str | None = None
) -> PartitionedModel:
    """Load the model, of this content if it is given, and cut it. Raises ModelError."""
    return partition(load_source(source, content=content).model, inputs, blocks)


def partition(model: TorchModel, inputs: Inputs, blocks: int) -> PartitionedModel:
    """Cut `model` into `blocks` blocks, or fewer if it lacks legal cuts.

    A model that neither torch.export nor symbolic tracing can capture is one block, with a warning that says why.
    Raises ModelError if the model does not work on its inputs, or if its outputs cannot be served.
    """
    if isinstance(model, OnnxModule):
        from partita_runtime.models.onnx.graph import layered_onnx  # the package onnx is in an extra

        graph = layered_onnx(model, inputs)
        return replace(_cut(graph, graph.blocks, inputs, blocks), uncut=model.taking(names_of(inputs)).eval())
    captures: list[Callable[[Inputs], CapturedGraph]] = []
    obstacles: list[str] = []
    if isinstance(model, ExportedProgram):
        check_exported_inputs(model, inputs)
        captures = [partial(exported_graph, model)]
    elif isinstance(model, torch.jit.ScriptModule):
        obstacles.append("a TorchScript module cannot be cut (a .pt2 file of torch.export can)")
    else:
        captures = [partial(export_graph, model), partial(traced_graph, model)]
    for capture in captures:
        try:
            layers = layered(capture(inputs), inputs)
            return _cut(layers, partial(cut_blocks, layers), inputs, blocks)
        except ModelError:
            raise
        except Exception as error:
            # Whatever error torch raises for a user's model, the model may still run as a whole.
            obstacles.append(f"{type(error).__name__}: {_first_line(error)}")
    return _whole(WholeModel(model, inputs), inputs, obstacles)


class _Layered(Protocol):
    """A graph with its layers."""

    @property
    def layers(self) -> tuple[Layer, ...]: ...

    @property
    def output_samples(self) -> tuple[SampleTensor, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    @property
    def vocabularies(self) -> tuple[int, ...]: ...

    @property
    def structure(self) -> tuple[object, ...]: ...


def _cut(
    graph: _Layered,
    cut: Callable[[Sequence[int]], tuple[torch.nn.Module, ...]],
    inputs: Inputs,
    blocks: int,
) -> PartitionedModel:
    """cut: the blocks that end with these layers."""
    costs, cut_bytes = [la.work.seconds for la in graph.layers], [la.cut_bytes for la in graph.layers]
    ends = prepartition(costs, cut_bytes, blocks)
    starts = (0, *ends[:-1])
    cuts = tuple(graph.layers[end - 1].crossing or () for end in ends[:-1])
    return PartitionedModel(
        digest=partition_digest(graph.structure, inputs, ends),
        blocks=tuple(block.eval() for block in cut(ends)),
        boundaries=(_input_samples(inputs), *cuts, graph.output_samples),
        work=tuple(
            sum((layer.work for layer in graph.layers[start:end]), Work())
            for start, end in zip(starts, ends, strict=True)
        ),
        output_names=graph.output_names,
        vocabularies=graph.vocabularies,
        warnings=(f"the model has legal cuts for {len(ends)} blocks only, not {blocks}",) if len(ends) < blocks else (),
    )


def _whole(whole: WholeModel, inputs: Inputs, obstacles: Sequence[str]) -> PartitionedModel:
    small, large = (_answer(whole, inputs, batch) for batch in (1, 2))
    samples = []
    for i, (one, two) in enumerate(zip(small, large, strict=True)):
        leads = one.shape[:1] == (1,) and two.shape[:1] == (2,) and one.shape[1:] == two.shape[1:]
        dtype = str(two.dtype).removeprefix("torch.")
        samples.append(output_sample(SampleTensor(tuple(two.shape[1:]), dtype) if leads else None, i))
    weights = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in whole.model.state_dict().items()]
    answered = [[list(sample.shape), sample.dtype] for sample in samples]
    return PartitionedModel(
        digest=partition_digest([type(whole.model).__name__, weights, answered], inputs, (1,)),
        blocks=(whole,),
        boundaries=(_input_samples(inputs), tuple(samples)),
        work=(Work(seconds=1.0),),
        output_names=whole.output_names(),
        warnings=("the model is served as one block: " + "; ".join(obstacles),),
    )


def _answer(whole: WholeModel, inputs: Inputs, batch: int) -> tuple[torch.Tensor, ...]:
    try:
        with torch.inference_mode():
            answer: tuple[torch.Tensor, ...] = whole(*examples(inputs, batch))
    except Exception as error:
        given = ", ".join(f"{batch} x {list(spec.shape)} {spec.dtype}" for spec in specs_of(inputs))
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"the model raised {type(error).__name__} on its input of {given}: "
            f"{_first_line(error)}; correct the module's input, or the model",
        ) from error
    if not answer:
        raise ModelError(ModelErrorReason.BAD_OUTPUT, "the model returns no tensor; it must return at least one")
    return answer


def _input_samples(inputs: Inputs) -> tuple[SampleTensor, ...]:
    return tuple(SampleTensor(spec.shape, NUMPY_DTYPES[spec.dtype].name) for spec in specs_of(inputs))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
