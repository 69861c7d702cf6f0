"""How a session's models run: the backend of their blocks, and the element type between stages."""

from enum import StrEnum

from pydantic import Field

from partita_api.meta import SpecModel


class Backend(StrEnum):
    """How a block is executed."""

    EAGER = "Eager"
    INDUCTOR = "Inductor"
    CUDA_GRAPHS = "CudaGraphs"
    TENSORRT = "TensorRT"
    ONNX_RUNTIME = "OnnxRuntime"


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
