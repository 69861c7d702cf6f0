"""The modules of an application: models, CPU functions between them, and models on other servers."""

from enum import StrEnum
from operator import not_
from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.fields.arguments import BOUNDS, Arguments
from partita_api.fields.number import SignedNumber
from partita_api.fields.quantity import Quantity, cel_comparison
from partita_api.meta import NAME_PATTERN, Rule, SpecModel, is_unset
from partita_api.pod.template import ImageName, ResourceAmounts
from partita_api.session.endpoint import EndpointSource
from partita_api.session.sizes import PADDING_IS_AN_ELEMENT, SIZE_RULES, Size

ENTRYPOINT_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
REPOSITORY_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""What repositories of Hugging Face look like."""
REVISION_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"
"""What branches, tags and commits look like."""

# Parts of CEL rules.
_TAKES_IMAGES: Final = "(has(self.input) && size(self.input.shape) == 3)"
_CHANNEL: Final = "(has(self.image.layout) && self.image.layout == 'HWC' ? 2 : 0)"
_CHANNELS: Final = f"self.input.shape[{_CHANNEL}]"
_MEANS: Final = "(has(self.image.mean) ? size(self.image.mean) : 0)"
_STDS: Final = "(has(self.image.std) ? size(self.image.std) : 0)"

MAX_MODULES: Final = 32
MAX_NAME: Final = 40
InputName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_.:/-]*$")]
ModuleName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=NAME_PATTERN)]


class DType(StrEnum):
    """Tensor element types, by their names in the Open Inference Protocol."""

    FP32 = "FP32"
    FP16 = "FP16"
    FP64 = "FP64"
    INT64 = "INT64"
    INT32 = "INT32"
    INT16 = "INT16"
    INT8 = "INT8"
    UINT64 = "UINT64"
    UINT32 = "UINT32"
    UINT16 = "UINT16"
    UINT8 = "UINT8"
    BOOL = "BOOL"
    BYTES = "BYTES"
    """Texts, or encoded files such as pictures. Only functions take and return them."""


MAX_BYTES_ELEMENTS: Final = 1024
"""Most elements of type BYTES in one sample: each is an object in memory, whatever its length."""


class TensorSpec(SpecModel):
    """One tensor of a request, without its batch dimension."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"BYTES needs a shape of one dimension, of at most {MAX_BYTES_ELEMENTS} elements",
            lambda spec: (
                spec.dtype is not DType.BYTES or (len(spec.shape) == 1 and spec.shape[0] <= MAX_BYTES_ELEMENTS)
            ),
            f"!has(self.dtype) || self.dtype != 'BYTES' || "
            f"(size(self.shape) == 1 && self.shape[0] <= {MAX_BYTES_ELEMENTS})",
        ),
        Rule(
            "variableDimension must be the index of a dimension of shape, which counts from 0",
            lambda tensor: tensor.variable_dimension is None or tensor.variable_dimension < len(tensor.shape),
            "!has(self.variableDimension) || self.variableDimension < size(self.shape)",
        ),
        Rule(
            "padding fills up samples of variable size, and needs variableDimension",
            lambda tensor: tensor.padding is None or tensor.variable_dimension is not None,
            "!has(self.padding) || has(self.variableDimension)",
        ),
        PADDING_IS_AN_ELEMENT,
    )

    shape: tuple[Annotated[int, Field(ge=1, le=1_048_576)], ...] = Field(
        min_length=1, max_length=8, description="Dimensions of one sample, such as [3, 224, 224]."
    )
    dtype: DType = Field(
        default=DType.FP32,
        description="Element type. BYTES (texts, encoded files) is not for models.",
    )
    variable_dimension: int | None = Field(
        default=None,
        ge=0,
        le=7,
        exclude_if=is_unset,
        description="Index of the dimension of shape that may be smaller in a sample, such as 2 for images [3, 48, "
        "1280] of any width up to 1280. A model then needs sizes.",
    )
    padding: SignedNumber | None = Field(
        default=None,
        exclude_if=is_unset,
        description="The value that fills up samples that are smaller than their size class. Default: 0.",
    )


class NamedInput(TensorSpec):
    """One of a module's input tensors."""

    name: InputName = Field(description="The model's own name: a keyword argument, or an input of the ONNX graph.")


Inputs = TensorSpec | tuple[NamedInput, ...]
"""What a module takes: one tensor, or several by name."""


def specs_of(inputs: Inputs | None) -> tuple[TensorSpec, ...]:
    """The tensors in order; empty for None."""
    return (inputs,) if isinstance(inputs, TensorSpec) else inputs or ()


def names_of(inputs: Inputs) -> tuple[str, ...]:
    """The names of several inputs in order; empty for one without a name."""
    return () if isinstance(inputs, TensorSpec) else tuple(tensor.name for tensor in inputs)


IMAGE_DTYPES: Final = (DType.FP32, DType.FP16, DType.UINT8)
"""Element types that images become."""


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
        description="Stretch: the whole image, with changed proportions. Crop: the largest part in the middle "
        "that fits. With input.variableDimension, proportions stay up to the largest size.",
    )
    mean: tuple[Quantity, ...] = Field(
        default=(),
        max_length=3,
        description="Subtracted from each channel, whose values are from 0 to 1. Not for UINT8, whose values stay "
        "from 0 to 255.",
    )
    std: tuple[Quantity, ...] = Field(
        default=(),
        max_length=3,
        description="Standard deviation: each channel is divided by it after the subtraction. Not for UINT8.",
    )

    @property
    def channel_dimension(self) -> int:
        """The index of the tensor's dimension that is the channels."""
        return 0 if self.layout is ImageLayout.CHW else 2


class HuggingFaceTask(StrEnum):
    """What a model of Hugging Face computes, by its name there."""

    FEATURE_EXTRACTION = "feature-extraction"
    FILL_MASK = "fill-mask"
    IMAGE_CLASSIFICATION = "image-classification"
    IMAGE_SEGMENTATION = "image-segmentation"
    OBJECT_DETECTION = "object-detection"
    QUESTION_ANSWERING = "question-answering"
    TEXT_CLASSIFICATION = "text-classification"
    TOKEN_CLASSIFICATION = "token-classification"


class ModelSource(SpecModel):
    """Where a neural network comes from."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a model needs exactly one of entrypoint, file and huggingFace",
            lambda source: [source.entrypoint, source.file, source.hugging_face].count(None) == 2,
            "[has(self.entrypoint), has(self.file), has(self.huggingFace)].filter(given, given).size() == 1",
        ),
        Rule(
            "revision and task are of a repository of Hugging Face, and need huggingFace",
            lambda source: source.hugging_face is not None or (source.revision is None and source.task is None),
            "has(self.huggingFace) || (!has(self.revision) && !has(self.task))",
        ),
        Rule(
            "weights are loaded into the model of an entrypoint, and need entrypoint",
            lambda source: source.weights is None or source.entrypoint is not None,
            "!has(self.weights) || has(self.entrypoint)",
        ),
        Rule(
            "sha256 is the digest of a file, and needs file or weights",
            lambda source: source.sha256 is None or source.file is not None or source.weights is not None,
            "!has(self.sha256) || has(self.file) || has(self.weights)",
        ),
    )

    entrypoint: str | None = Field(
        default=None,
        max_length=253,
        pattern=ENTRYPOINT_PATTERN,
        description="Python callable that returns a torch.nn.Module, such as partita_models.vision:detector.",
    )
    kwargs: Arguments = Field(
        default={},
        description=f"Keyword arguments for the entrypoint (JSON values): {BOUNDS}.",
    )
    file: str | None = Field(
        default=None,
        max_length=1024,
        description="Path or URI of a file of torch.export (.pt2), ONNX (.onnx) or TorchScript (.pt).",
    )
    weights: str | None = Field(
        default=None,
        max_length=1024,
        description="Path or URI of the entrypoint's weights: .safetensors, .pt, .pth or .bin.",
    )
    sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 digest of the file or weights, which is checked."
    )
    hugging_face: str | None = Field(
        default=None,
        max_length=192,
        pattern=REPOSITORY_PATTERN,
        description="Repository of Hugging Face with weights as safetensors, such as google/vit-base-patch16-224.",
    )
    revision: str | None = Field(
        default=None,
        max_length=128,
        pattern=REVISION_PATTERN,
        description="Commit, tag or branch of the repository. Default: main, or the commit that the platform requires.",
    )
    task: HuggingFaceTask | None = Field(
        default=None,
        description="What the repository's model computes. Default: the first of the architectures in its config.json.",
    )


class FunctionSource(SpecModel):
    """A CPU function between models, such as cropping what a detector found."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "resources are those of the function's own container, and need image",
            lambda function: function.resources is None or function.image is not None,
            "!has(self.resources) || has(self.image)",
        ),
    )

    entrypoint: str = Field(
        max_length=253, pattern=ENTRYPOINT_PATTERN, description="Python callable, such as examples.traffic:crop."
    )
    kwargs: Arguments = Field(default={}, description=f"Keyword arguments (JSON values): {BOUNDS}.")
    max_millis: int = Field(
        default=10, ge=0, le=60_000, description="Milliseconds of the SLO that are reserved for one call."
    )
    image: ImageName | None = Field(
        default=None, exclude_if=is_unset, description="Image of a container of its own. Needs engine KubeRay."
    )
    resources: ResourceAmounts | None = Field(
        default=None, exclude_if=is_unset, description="What this container requests, and its limits."
    )


class Join(StrEnum):
    """When a module with several incoming edges runs."""

    ALL = "All"
    ANY = "Any"
    FIRST = "First"


class Module(SpecModel):
    """One node of the application's DAG: a model, a CPU function, or a model on another server."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a module needs exactly one of model, function and endpoint",
            lambda module: [module.model, module.function, module.endpoint].count(None) == 2,
            # `function` is a reserved word of CEL, which Kubernetes escapes with underscores.
            "[has(self.model), has(self.__function__), has(self.endpoint)].filter(is, is).size() == 1",
        ),
        Rule(
            "a module with a model or an endpoint needs input, or a model inputs: the shape and dtype of each tensor",
            lambda module: (
                (module.model is None or module.takes is not None)
                and (module.endpoint is None or (module.input is not None and module.inputs is None))
            ),
            "(!has(self.model) || has(self.input) || has(self.inputs)) && "
            "(!has(self.endpoint) || (has(self.input) && !has(self.inputs)))",
        ),
        Rule.exclusive("input", "inputs", "a module has one tensor in input, or several in inputs; remove one of them"),
        Rule(
            "inputs need different names",
            lambda module: len({tensor.name for tensor in module.inputs or ()}) == len(module.inputs or ()),
            "!has(self.inputs) || self.inputs.all(i, self.inputs.exists_one(j, j.name == i.name))",
        ),
        Rule(
            "models take numbers, not BYTES; declare BYTES for a function in front of the model",
            lambda module: module.model is None or all(t.dtype is not DType.BYTES for t in specs_of(module.takes)),
            "!has(self.model) || ((!has(self.input) || !has(self.input.dtype) || self.input.dtype != 'BYTES') && "
            "(!has(self.inputs) || self.inputs.all(i, !has(i.dtype) || i.dtype != 'BYTES')))",
        ),
        Rule(
            "endpoints with a protocol of OpenAI take one text; set input to shape [1] and dtype BYTES",
            lambda module: (
                module.endpoint is None
                or not module.endpoint.protocol.takes_text
                or module.input == TensorSpec(shape=(1,), dtype=DType.BYTES)
            ),
            "!has(self.endpoint) || !has(self.endpoint.protocol) || self.endpoint.protocol == 'OpenInference' || "
            "(has(self.input) && has(self.input.dtype) && self.input.dtype == 'BYTES' && self.input.shape == [1])",
        ),
        Rule(
            "image needs an input of three dimensions: channels, height and width",
            lambda module: module.image is None or module.takes_images,
            f"!has(self.image) || {_TAKES_IMAGES}",
        ),
        Rule(
            "an image has 1 or 3 channels; correct input.shape or image.layout",
            lambda module: module.image_channels in (None, 1, 3),
            f"!has(self.image) || !{_TAKES_IMAGES} || {_CHANNELS} in [1, 3]",
        ),
        Rule(
            "images become FP32, FP16 or UINT8; correct input.dtype, or remove image",
            lambda module: module.image is None or module.input is None or module.input.dtype in IMAGE_DTYPES,
            "!has(self.image) || !has(self.input) || !has(self.input.dtype) || "
            f"self.input.dtype in {[str(dtype) for dtype in IMAGE_DTYPES]}",
        ),
        Rule(
            "images as UINT8 are not normalised; remove image.mean and image.std",
            lambda module: (
                module.image is None
                or module.input is None
                or module.input.dtype is not DType.UINT8
                or not (module.image.mean or module.image.std)
            ),
            "!has(self.image) || !has(self.input) || !has(self.input.dtype) || self.input.dtype != 'UINT8' || "
            f"({_MEANS} == 0 && {_STDS} == 0)",
        ),
        Rule(
            "image.mean and image.std need one number for each channel",
            lambda module: (
                module.image_channels not in (1, 3)
                or all(len(numbers) in (0, module.image_channels) for numbers in (module.image.mean, module.image.std))
            ),
            f"!has(self.image) || !{_TAKES_IMAGES} || !({_CHANNELS} in [1, 3]) || "
            f"({_MEANS} in [0, {_CHANNELS}] && {_STDS} in [0, {_CHANNELS}])",
        ),
        Rule(
            "image.std must be above 0",
            lambda module: module.image is None or all(number.value > 0 for number in module.image.std),
            f"!has(self.image) || !has(self.image.std) || self.image.std.all(s, {cel_comparison('s', '>', '0')})",
        ),
        *SIZE_RULES,
        Rule(
            "of an image, the width or the height may vary; correct input.variableDimension or image.layout",
            lambda module: (
                module.image is None
                or not module.takes_images
                or module.input.variable_dimension != module.image.channel_dimension
            ),
            f"!has(self.image) || !{_TAKES_IMAGES} || !has(self.input.variableDimension) || "
            f"self.input.variableDimension != {_CHANNEL}",
        ),
    )

    name: ModuleName = Field(description="Name of the module, unique in the session.")
    model: ModelSource | None = Field(default=None, description="A neural network, run on the pools.")
    function: FunctionSource | None = Field(default=None, description="A CPU function, run beside the frontend.")
    endpoint: EndpointSource | None = Field(
        default=None, description="A model on a server that the user runs, called by the frontend."
    )
    input: TensorSpec | None = Field(default=None, description="The tensor that one sample of the model's input is.")
    inputs: tuple[NamedInput, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        exclude_if=is_unset,
        description="Instead of input: the tensors by the model's own names of them.",
    )
    image: ImageInput | None = Field(
        default=None, description="Clients may send JPEG and PNG images as the input, which become tensors like this."
    )
    sizes: tuple[Size, ...] | None = Field(
        default=None,
        min_length=2,
        max_length=8,
        exclude_if=is_unset,
        description="The size classes of a model whose input has a variableDimension: a sample is padded to the "
        "smallest one that it fits into. Each class has batches, a profile and replicas of its own. Several inputs may "
        "vary: they have one size in a sample.",
    )
    size_step: int | None = Field(
        default=None,
        ge=1,
        le=1_048_576,
        exclude_if=is_unset,
        description="The model computes every multiple of this size, too. Where ONNX Runtime computes the whole model, "
        "a batch then has the size of its largest sample, rounded up to a multiple, instead of that of its class.",
    )
    optional: bool = Field(
        default=False,
        exclude_if=not_,
        description="Whether a request goes on without this module's answer if the module fails or would be late. The "
        "output NAME.answered says so.",
    )
    join: Join = Field(
        default=Join.ALL,
        exclude_if=lambda join: join is Join.ALL,
        description="When a module with several incoming edges runs. All: a function, once for each request, when no "
        "answer is missing any more. Any: for each answer from one of the upstream modules, as soon as it is there. "
        "First: for the first of these answers only; what is still needed for the others is cancelled.",
    )

    @property
    def reserved_millis(self) -> int | None:
        """Milliseconds of the SLO that are reserved for one call; None for a model, whose latency is planned."""
        called = self.function or self.endpoint
        return None if called is None else called.max_millis

    @property
    def takes(self) -> Inputs | None:
        """Its input tensors, if it declares any."""
        return self.input if self.inputs is None else self.inputs

    @property
    def takes_images(self) -> bool:
        """Whether the input tensor has the three dimensions of an image."""
        return self.input is not None and len(self.input.shape) == 3

    @property
    def image_channels(self) -> int | None:
        """Channels of the image that becomes the input tensor; None if clients may not send images."""
        if self.image is None or self.input is None or len(self.input.shape) != 3:
            return None
        return self.input.shape[self.image.channel_dimension]
