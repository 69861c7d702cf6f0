"""Execution as CUDA graphs, one for each batch size: a replay launches all kernels of a stage at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from partita_runtime.execution.torch_stage import Boundary, CannotBuildError, Compute, StageBlocks

RUNS_BEFORE: Final = 3
"""Eager runs before the recording, in which libraries choose kernels and allocate memory."""


def cuda_graphs(blocks: StageBlocks, entry: Boundary) -> Compute:
    """Record the blocks for a batch of two now, and for other sizes at their first run (the warm-up).

    Raises CannotBuildError, for example for blocks that wait for the device or do not always run the same kernels.
    """
    if entry.device.type != "cuda":
        raise CannotBuildError("there is no CUDA device")
    graphs = _Graphs(blocks)
    try:
        with torch.inference_mode():
            graphs(entry.zeros(2))
    except Exception as error:
        raise CannotBuildError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return graphs


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: Sequence[torch.Tensor]
    """The input buffers of the graph."""
    outputs: Sequence[torch.Tensor]
    """Its output buffers, valid until the next replay of any graph."""


class _Graphs:
    """All graphs of a stage. They share one memory pool, since one batch runs at a time."""

    def __init__(self, blocks: StageBlocks) -> None:
        self._blocks = blocks
        self._recorded: dict[int, _Recorded] = {}
        self._pool: Any = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        batch = tensors[0].shape[0]
        recorded = self._recorded.get(batch)
        if recorded is None:
            recorded = self._recorded[batch] = self._record([tensor.clone() for tensor in tensors])
        for buffer, tensor in zip(recorded.inputs, tensors, strict=True):
            buffer.copy_(tensor)
        recorded.graph.replay()
        return recorded.outputs

    def _record(self, inputs: Sequence[torch.Tensor]) -> _Recorded:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(RUNS_BEFORE):
                self._blocks(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # With sub-clusters, another thread may run batches of other models at the same time.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = self._blocks(*inputs)
        self._pool = graph.pool()
        return _Recorded(graph, inputs, outputs)
