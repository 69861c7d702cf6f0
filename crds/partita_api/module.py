"""The modules of an application, models and CPU functions between them, and the edges of its DAG."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from partita_api.meta import NAME_PATTERN, SpecModel
from partita_api.quantity import Quantity

ENTRYPOINT_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"

ModuleName = Annotated[str, Field(min_length=1, max_length=40, pattern=NAME_PATTERN)]


class DType(StrEnum):
    """Tensor element types, by their names in the Open Inference Protocol."""

    FP32 = "FP32"
    FP16 = "FP16"
    INT64 = "INT64"
    INT32 = "INT32"
    UINT8 = "UINT8"


class TensorSpec(SpecModel):
    """One tensor of a request, without its batch dimension."""

    shape: tuple[Annotated[int, Field(ge=1, le=1_048_576)], ...] = Field(
        min_length=1, max_length=8, description="Dimensions of one sample, such as [3, 224, 224]."
    )
    dtype: DType = Field(default=DType.FP32, description="Element type.")


class ImageLayout(StrEnum):
    """The order of an image tensor's dimensions: channels, height, width."""

    CHW = "CHW"
    HWC = "HWC"


class ImageFit(StrEnum):
    """How an image of other proportions becomes one of the tensor's."""

    STRETCH = "Stretch"
    CROP = "Crop"


class ImageInput(SpecModel):
    """How JPEG and PNG images become a module's input tensor; its size is that of the tensor."""

    layout: ImageLayout = Field(default=ImageLayout.CHW, description="Order of the tensor's dimensions: CHW or HWC.")
    fit: ImageFit = Field(
        default=ImageFit.STRETCH,
        description="Stretch: the whole image, its proportions changed. Crop: the largest middle part that fits.",
    )
    mean: tuple[Quantity, ...] = Field(
        default=(),
        max_length=3,
        description="Subtracted from each channel, which is from 0 to 1 before. Not for UINT8, which is 0 to 255.",
    )
    std: tuple[Quantity, ...] = Field(
        default=(), max_length=3, description="Standard deviation that each channel is then divided by. Not for UINT8."
    )


class ModelSource(SpecModel):
    """Where a neural network comes from."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        ("has(self.entrypoint) != has(self.file)", "a model needs either entrypoint or file, and not both"),
        (
            "!has(self.weights) || has(self.entrypoint)",
            "weights are loaded into the model of an entrypoint, and need entrypoint",
        ),
        (
            "!has(self.sha256) || has(self.file) || has(self.weights)",
            "sha256 is the digest of a file, and needs file or weights",
        ),
    )

    entrypoint: str | None = Field(
        default=None,
        max_length=253,
        pattern=ENTRYPOINT_PATTERN,
        description="Python callable that returns a torch.nn.Module, such as partita_models.vision:detector.",
    )
    kwargs: dict[str, Any] = Field(
        default={}, max_length=64, description="Keyword arguments for the entrypoint (JSON values)."
    )
    file: str | None = Field(
        default=None, max_length=1024, description="Path or URI of a torch.export (.pt2) or TorchScript (.pt) file."
    )
    weights: str | None = Field(
        default=None,
        max_length=1024,
        description="Path or URI of the weights for the entrypoint's model: .safetensors, or a state dict (.pt, .pth, "
        ".bin).",
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 digest of the file, or of the weights, which is checked before they are loaded.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.entrypoint is None) == (self.file is None):
            raise ValueError("a model needs either entrypoint or file, and not both")
        if self.weights is not None and self.entrypoint is None:
            raise ValueError("weights are loaded into the model of an entrypoint, and need entrypoint")
        if self.sha256 is not None and self.file is None and self.weights is None:
            raise ValueError("sha256 is the digest of a file, and needs file or weights")
        return self


class FunctionSource(SpecModel):
    """A CPU function between models, such as cropping what a detector found."""

    entrypoint: str = Field(
        max_length=253, pattern=ENTRYPOINT_PATTERN, description="Python callable, such as examples.traffic:crop."
    )
    kwargs: dict[str, Any] = Field(default={}, max_length=64, description="Keyword arguments (JSON values).")
    max_millis: int = Field(default=10, ge=0, le=60_000, description="Milliseconds of the SLO set aside for one call.")


class Module(SpecModel):
    """One node of the application's DAG: a model, or a CPU function."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        # `function` is a reserved word of CEL, which Kubernetes escapes with underscores.
        ("has(self.model) != has(self.__function__)", "a module needs either model or function, and not both"),
        ("!has(self.model) || has(self.input)", "a module with a model needs input: its tensor's shape and dtype"),
        (
            "!has(self.image) || (has(self.input) && size(self.input.shape) == 3)",
            "image needs an input of three dimensions: channels, height and width",
        ),
    )

    name: ModuleName = Field(description="Name of the module, unique in the session.")
    model: ModelSource | None = Field(default=None, description="A neural network, run on the pools.")
    function: FunctionSource | None = Field(default=None, description="A CPU function, run beside the frontend.")
    input: TensorSpec | None = Field(default=None, description="The tensor that one sample of the model's input is.")
    image: ImageInput | None = Field(
        default=None, description="Clients may send JPEG and PNG images as the input, which become tensors like this."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.model is None) == (self.function is None):
            raise ValueError(f"module {self.name!r} needs either model or function, and not both")
        if self.model is not None and self.input is None:
            raise ValueError(f"module {self.name!r} has a model and needs input: its tensor's shape and dtype")
        return self

    @model_validator(mode="after")
    def _images_fit(self) -> Self:
        if self.image is None:
            return self
        if self.input is None or len(self.input.shape) != 3:
            raise ValueError(f"module {self.name!r}: image needs an input of three dimensions")
        channels = self.input.shape[0 if self.image.layout is ImageLayout.CHW else 2]
        if channels not in (1, 3):
            raise ValueError(f"module {self.name!r}: an image has 1 or 3 channels, not {channels}; see image.layout")
        if self.input.dtype in (DType.INT32, DType.INT64):
            raise ValueError(f"module {self.name!r}: images become FP32, FP16 or UINT8, not {self.input.dtype}")
        normalisation = (self.image.mean, self.image.std)
        if self.input.dtype is DType.UINT8 and any(normalisation):
            raise ValueError(f"module {self.name!r}: images as UINT8 are not normalised; leave mean and std out")
        if any(len(numbers) not in (0, channels) for numbers in normalisation):
            raise ValueError(f"module {self.name!r}: image.mean and image.std need {channels} numbers each")
        if any(number.value <= 0 for number in self.image.std):
            raise ValueError(f"module {self.name!r}: image.std must be above 0")
        return self


class FanOut(SpecModel):
    """How many sub-requests one upstream answer makes on an edge."""

    mean: Quantity = Field(default=Quantity("1"), description='Average number, to plan rates with, such as "1.5".')
    max: int = Field(default=1, ge=1, le=64, description="Most sub-requests taken from one answer; more are left out.")


class Edge(SpecModel):
    """The answer of one module goes to another."""

    source: ModuleName = Field(alias="from", description="The upstream module.")
    target: ModuleName = Field(alias="to", description="The downstream module.")
    fan_out: FanOut = Field(default=FanOut(), description="How many sub-requests one answer makes.")
