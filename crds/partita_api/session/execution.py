"""How a session's models run: the backend of their blocks, the element type between stages, and batching."""

from collections.abc import Hashable, Iterable
from enum import StrEnum

from pydantic import Field

from partita_api.meta import SpecModel
from partita_api.session.module import MAX_MODULES, ModelSource, ModuleName


class Backend(StrEnum):
    """How a block is executed."""

    EAGER = "Eager"
    INDUCTOR = "Inductor"
    CUDA_GRAPHS = "CudaGraphs"
    TENSORRT = "TensorRT"
    ONNX_RUNTIME = "OnnxRuntime"


def common_weights(model: ModelSource, backend: Backend) -> str | None:
    """Identifies the weights that models of one process have in memory once; None where each model has its own.

    Engines of TensorRT contain the weights, and ONNX Runtime copies them in the order that its kernels need.

    >>> classes = [ModelSource(entrypoint="bert:encoder"), ModelSource(entrypoint="bert:encoder")]
    >>> len({common_weights(model, Backend.INDUCTOR) for model in classes})
    1
    >>> common_weights(ModelSource(file="bert.onnx"), Backend.EAGER)
    """
    if backend is Backend.TENSORRT or (model.file or "").endswith(".onnx"):
        return None
    return model.model_dump_json(exclude_defaults=True)


def weights_bytes(models: Iterable[tuple[Hashable, float]]) -> float:
    """What models of one process need for their weights, from what identifies them and the bytes of each model.

    >>> weights_bytes([("bert", 100), ("resnet", 50), ("bert", 100)])
    150
    """
    largest: dict[Hashable, float] = {}
    for identity, needed in models:
        largest[identity] = max(needed, largest.get(identity, 0))
    return sum(largest.values())


class CutDType(StrEnum):
    """Element type of feature maps between stages."""

    FP16 = "FP16"
    FP32 = "FP32"


class Execution(SpecModel):
    """How models run."""

    backend: Backend = Field(
        default=Backend.EAGER,
        description="Eager: operation by operation. Inductor: compiled. CudaGraphs: recorded on the GPU for each "
        "batch size, and replayed. TensorRT: an engine for each batch size; needs torch_tensorrt. A "
        "stage that cannot be built runs Eager, with a warning in the status.",
    )
    cut_dtype: CutDType = Field(
        default=CutDType.FP16, description="Element type of feature maps between stages; FP16 halves the traffic."
    )


class BatchingPolicy(StrEnum):
    """When a batch is dispatched."""

    DEFERRED = "Deferred"
    EAGER = "Eager"
    ELSA = "Elsa"


class ElsaSlack(SpecModel):
    """The weights of the estimated time of a call on a vGPU, which policy Elsa compares with the time left."""

    alpha_percent: int = Field(
        default=100,
        ge=10,
        le=1000,
        description="Weight of the whole estimated time. Above 100, calls go to larger vGPUs earlier: for calls that "
        "are often late.",
    )
    beta_percent: int = Field(
        default=100,
        ge=10,
        le=1000,
        description="Weight of the profiled execution in it. Above 100: for executions that take longer than profiled.",
    )


class Batching(SpecModel):
    """How requests form batches."""

    policy: BatchingPolicy = Field(
        default=BatchingPolicy.DEFERRED,
        description="Deferred: wait within the deadline for a batch that fills its GPU. Eager: dispatch to an "
        "idle GPU at once. Elsa: each call is a batch, on the smallest vGPU that is in time (for calls "
        "that are batches themselves).",
    )
    modules: dict[ModuleName, BatchingPolicy] = Field(
        default={}, max_length=MAX_MODULES, description="Other policies of single modules, by module name."
    )
    elsa: ElsaSlack | None = Field(
        default=None,
        exclude_if=lambda elsa: elsa is None,
        description="For Elsa, a vGPU is in time if the time left is at least alpha * (wait + beta * execution).",
    )
