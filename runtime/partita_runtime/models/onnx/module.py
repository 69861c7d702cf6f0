"""A part of an ONNX graph as a torch module that ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import torch

from partita_runtime.models.errors import ModelError, ModelErrorReason

if TYPE_CHECKING:
    from onnx import ModelProto

CPU: Final = "CPUExecutionProvider"
"""ONNX Runtime's name of the CPU."""
CUDA: Final = "CUDAExecutionProvider"
"""ONNX Runtime's name of NVIDIA GPUs."""
_INLINE_BYTES: Final = 4096
"""Smaller constants stay in the graph, where ONNX Runtime reads shapes from them."""


class OnnxModule(torch.nn.Module):
    """Takes and returns tensors in the memory of the host, on whatever device ONNX Runtime computes.

    Its weights are its buffers. ONNX Runtime reads them there, and copies only what its kernels need in another order.
    """

    def __init__(
        self,
        model: ModelProto,
        weights: Mapping[str, torch.Tensor],
        *,
        activation_bytes: int = 0,
        provider: str = CPU,
        input_names: Sequence[str] = (),
    ) -> None:
        """model: a graph whose large weights are in `weights` (see `onnx_module`).

        activation_bytes: the peak of the values of one sample that are alive at a time. input_names: the order in
        which it takes its inputs; by default that of the graph.
        """
        super().__init__()
        self.model = model
        self.weights = dict(weights)
        self.activation_bytes = activation_bytes
        self.provider = provider
        constants = {tensor.name for tensor in model.graph.initializer}
        self.output_names = tuple(value.name for value in model.graph.output)
        self.input_names = tuple(
            input_names or [value.name for value in model.graph.input if value.name not in constants]
        )
        for i, weight in enumerate(weights.values()):
            self.register_buffer(f"weight_{i}", weight)

    def on(self, provider: str) -> OnnxModule:
        """The same graph and weights, computed by another provider of ONNX Runtime."""
        return OnnxModule(
            self.model,
            self.weights,
            activation_bytes=self.activation_bytes,
            provider=provider,
            input_names=self.input_names,
        )

    def taking(self, names: Sequence[str]) -> OnnxModule:
        """The same graph and weights, which takes its inputs in this order."""
        return OnnxModule(
            self.model,
            self.weights,
            activation_bytes=self.activation_bytes,
            provider=self.provider,
            input_names=names,
        )

    @property
    def graph_bytes(self) -> int:
        """The weights and constants that are in the graph itself: small ones, and those of branches and loops."""
        from onnx import TensorProto  # not in the images of the planner and the operator

        from partita_runtime.models.onnx.nodes import all_tensors

        there = all_tensors(self.model.graph)
        return sum(tensor.ByteSize() for tensor in there if tensor.data_location != TensorProto.EXTERNAL)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The graph's outputs for its inputs. Raises ModelError if ONNX Runtime cannot run the graph."""
        feeds = {name: tensor.numpy(force=True) for name, tensor in zip(self.input_names, tensors, strict=True)}
        # ONNX Runtime has another C type for uint64 than torch.
        return tuple(torch.from_numpy(array.view(array.dtype.name)) for array in self._session.run(None, feeds))

    @cached_property
    def _session(self) -> Any:
        return session(self.model, self.weights, self.provider)


def onnx_module(model: ModelProto, activation_bytes: int = 0) -> OnnxModule:
    """The module of a complete graph, whose large weights this moves out of it. It keeps their names and shapes."""
    from onnx import TensorProto, numpy_helper  # not in the images of the planner and the operator

    weights = {}
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= _INLINE_BYTES:
            continue
        array = numpy_helper.to_array(tensor)
        if not hasattr(torch, array.dtype.name):
            continue
        weights[tensor.name] = torch.from_numpy(array if array.flags.writeable else array.copy())
        outside = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        outside.data_location = TensorProto.EXTERNAL
        outside.external_data.add(key="location", value="memory")
        tensor.CopyFrom(outside)
    return OnnxModule(model, weights, activation_bytes=activation_bytes)


def joined(modules: Sequence[OnnxModule]) -> OnnxModule:
    """Neighbouring parts as one graph, which ONNX Runtime optimizes as a whole."""
    first, *others = modules
    if not others:
        return first
    model, weights = type(first.model)(), dict(first.weights)
    model.CopyFrom(first.model)
    made = {name for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    for part in (other.model.graph for other in others):
        # Parts repeat what depends on weights and the batch size only, with the same names and values.
        model.graph.node.extend(node for node in part.node if made.isdisjoint(node.output))
        model.graph.initializer.extend(tensor for tensor in part.initializer if tensor.name not in constants)
        made.update(name for node in part.node for name in node.output)
        constants.update(tensor.name for tensor in part.initializer)
    for other in others:
        weights |= other.weights
    del model.graph.output[:]
    model.graph.output.extend(others[-1].model.graph.output)
    peak = max(module.activation_bytes for module in modules)
    return OnnxModule(model, weights, activation_bytes=peak, provider=first.provider)


def runtime_version() -> str:
    """The version of ONNX Runtime here."""
    import onnxruntime

    return str(onnxruntime.__version__)


def available_providers() -> tuple[str, ...]:
    """The providers that ONNX Runtime has here."""
    import onnxruntime

    return tuple(onnxruntime.get_available_providers())


@cache
def _share_memory() -> None:
    """Let all sessions of this process take the memory for values on the host from one place.

    Each would otherwise keep what its largest run has needed: gigabytes for the models of a sub-cluster, of which few
    run at a time.
    """
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, None)


def _configured(provider: str, model: ModelProto) -> str | tuple[str, dict[str, str]]:
    """The provider, with its settings for a graph that takes samples of any size."""
    sizes = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim[1:]]
    if provider != CUDA or all(size.HasField("dim_value") for size in sizes):
        return provider
    return provider, {"cudnn_conv_algo_search": "HEURISTIC"}  # by default it tries all algorithms for every new size


def session(model: ModelProto, weights: Mapping[str, torch.Tensor], provider: str, *, optimize: bool = True) -> Any:
    """An `onnxruntime.InferenceSession` with as many threads as torch has. Raises ModelError."""
    import onnxruntime

    _share_memory()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # replicas share their cores
    options.log_severity_level = 3  # errors
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED  # that of the graph
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight.numpy()) for weight in weights.values()]
    options.add_external_initializers(list(weights), values)
    providers = [_configured(provider, model)]
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:
        sizes = [dim.dim_value or dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
        raise ModelError(
            ModelErrorReason.BAD_INPUT,
            f"ONNX Runtime {onnxruntime.__version__} cannot run the model on an input of {sizes}: "
            f"{str(error).splitlines()[0][:300]}; correct the module's input, or export the model with operators and "
            "an opset that this version has",
        ) from error
