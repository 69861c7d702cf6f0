"""Profile: what one model costs on one GPU class, block by block. Kept in a ConfigMap under its content key.

Profiles are measured by processes that run users' code, so every number, text and list in them has bounds. They are far
from what models take, and small enough that all computations with them stay exact and finish.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import prod
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from partita_api.digests import CONTENT_PATTERN, digest
from partita_api.meta import SpecModel, StatusModel, Timestamp, is_unset
from partita_api.session.module import DType, Inputs, ModelSource, NamedInput, TensorSpec

PROFILE_FILE: Final = "profile.json"
"""The key of a profile ConfigMap's data that holds the document."""

MOST_BLOCKS: Final = 64
"""The most blocks of one model in a profile and in a PipelinePlan."""
MOST_BATCH_SIZES: Final = 64
LARGEST_BATCH: Final = 4096
LONGEST_MICROS: Final = 86_400_000_000
"""The longest time of a block: a day, in microseconds."""
MOST_MEMORY_BYTES: Final = 1 << 44
"""The most memory of a block: 16 TiB."""
MOST_SAMPLE_BYTES: Final = 1 << 32
"""The most bytes of one sample's tensors at a cut or at the end: 4 GiB."""
MOST_TENSORS: Final = 64
"""The most tensors at a cut or at the end."""
MOST_ROWS: Final = (1 << 63) - 1
"""The most rows of a table from which an input selects."""
MOST_TEXT: Final = 8192
"""The most characters of a text for people."""


def _of_a_model(tensor: TensorSpec) -> TensorSpec:
    if tensor.dtype is DType.BYTES:
        raise ValueError("models have no tensors of BYTES")
    if prod(tensor.shape) > MOST_SAMPLE_BYTES:
        raise ValueError(f"a tensor of shape {list(tensor.shape)} has more than {MOST_SAMPLE_BYTES} elements")
    return tensor


BatchSize = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]
Divisor = Annotated[int, Field(ge=1, le=8)]
Micros = Annotated[float, Field(ge=0, le=LONGEST_MICROS, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
MemoryBytes = Annotated[int, Field(ge=0, le=MOST_MEMORY_BYTES)]
SampleTensors = Annotated[
    tuple[Annotated[TensorSpec, AfterValidator(_of_a_model)], ...], Field(max_length=MOST_TENSORS)
]


class ProfiledPod(SpecModel):
    """What of a pod template may change a measurement."""

    image: str | None = Field(default=None, description="The image, if it is not the one of the settings.")
    variables: dict[str, str] | None = Field(
        default=None, description="Variables of the libraries that execute models."
    )
    cpus: str | None = Field(default=None, description="CPUs of the pod, where these compute.")
    content: str | None = Field(
        default=None,
        description="Digest of the variables and volumes of a session's template, which the model may come from.",
    )


class ProfileRequest(SpecModel):
    """What to profile; its digest is the profile's content key.

    It has all that may change a measurement, and nothing else. So sessions with equal requests share one profile.
    """

    model: ModelSource
    input: TensorSpec | None = Field(default=None, description="The only input, or None if inputs has several.")
    inputs: tuple[NamedInput, ...] | None = Field(default=None, min_length=1, max_length=8, exclude_if=is_unset)
    blocks: int = Field(ge=1, le=20)
    batch_sizes: tuple[BatchSize, ...] = Field(
        min_length=1, max_length=MOST_BATCH_SIZES, description="Increasing batch sizes to time."
    )
    divisors: tuple[Divisor, ...] = Field(
        default=(1,), min_length=1, max_length=8, description="vGPU divisors to time."
    )
    pool: str
    backend: str = "Eager"
    slowdown: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    curve: tuple[int, int] | None = Field(default=None, description="(alpha, beta) in microseconds, if emulated.")
    versions: dict[str, str] = Field(default={}, description="Library versions that matter, such as torch's.")
    pod: ProfiledPod | None = Field(default=None, description="What a pod template changes, if it changes anything.")

    @model_validator(mode="after")
    def _has_inputs(self) -> Self:
        if (self.input is None) == (self.inputs is None):
            raise ValueError("a model has one tensor in input, or several in inputs")
        return self

    @property
    def takes(self) -> Inputs:
        """The model's input tensors."""
        if self.inputs is not None:
            return self.inputs
        assert self.input is not None  # it has one of the two
        return self.input

    @property
    def key(self) -> str:
        """The content key."""
        return digest(self)


class VgpuLatency(SpecModel):
    """Times of every block on a vGPU of 1/divisor of an accelerator."""

    divisor: Divisor
    median_micros: tuple[Annotated[tuple[Micros, ...], Field(max_length=MOST_BATCH_SIZES)], ...] = Field(
        max_length=MOST_BLOCKS, description="[block][batch size] medians in microseconds."
    )
    spread: tuple[Annotated[tuple[Spread, ...], Field(max_length=MOST_BATCH_SIZES)], ...] = Field(
        default=(),
        max_length=MOST_BLOCKS,
        description="[block][batch size] interquartile range divided by the median; empty if unknown.",
    )


class Cut(SpecModel):
    """What crosses between two neighbouring blocks, for one sample."""

    bytes: int = Field(ge=0, le=MOST_SAMPLE_BYTES, description="Bytes of one sample's tensors at full precision.")
    tensors: int = Field(default=1, ge=1, le=MOST_TENSORS, description="Number of tensors.")
    specs: SampleTensors = Field(default=(), description="Each of them, at full precision; empty if unknown.")


class BlockMemory(SpecModel):
    """Memory of one block."""

    weights_bytes: MemoryBytes
    activation_bytes: MemoryBytes = Field(description="Largest live activations of one sample.")


class Profile(SpecModel):
    """Measured (or emulated) latency of a model's blocks on one GPU class.

    `latency` has one entry a vGPU divisor; all arrays in it are [block][batch size] in the order of `batch_sizes`.
    """

    schema_version: Literal[1] = 1
    key: str = Field(max_length=64)
    request: ProfileRequest
    partition: str = Field(max_length=64, description="Digest of the model's cut into blocks; equal on every class.")
    content: str | None = Field(
        default=None,
        pattern=CONTENT_PATTERN,
        description="What was loaded: the commit of a repository, or the SHA-256 digest of the file, the weights or a "
        "plain directory. None for an entrypoint without weights.",
    )
    batch_sizes: tuple[BatchSize, ...] = Field(max_length=MOST_BATCH_SIZES)
    latency: tuple[VgpuLatency, ...] = Field(max_length=8)
    cuts: tuple[Cut, ...] = Field(
        max_length=MOST_BLOCKS - 1, description="One between each pair of neighbouring blocks: blocks - 1."
    )
    memory: tuple[BlockMemory, ...] = Field(default=(), max_length=MOST_BLOCKS)
    outputs: SampleTensors = Field(default=(), description="Tensors that the last block gives for one sample.")
    output_names: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=(),
        max_length=MOST_TENSORS,
        description='The model\'s own names of its outputs, "" for one without a name; empty if unknown.',
    )
    vocabularies: tuple[Annotated[int, Field(ge=0, le=MOST_ROWS)], ...] = Field(
        default=(),
        max_length=MOST_TENSORS,
        description="How many rows the table has from which the numbers of each input select, such as token ids; 0 for "
        "an input with other numbers. Empty if no input selects rows, or it is unknown.",
    )
    environment: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=MOST_TEXT)]] = Field(
        default={}, max_length=16, description="Device, library versions and date, for people."
    )

    @classmethod
    def of_whole_model(
        cls,
        model: ModelSource,
        input: TensorSpec,
        pool: str,
        milliseconds: Mapping[int, float],
        backend: str = "Eager",
    ) -> Self:
        """The profile of a model as one block on whole accelerators; `milliseconds` of a batch by its size."""
        sizes = tuple(sorted(milliseconds))
        request = ProfileRequest(model=model, input=input, blocks=1, batch_sizes=sizes, pool=pool, backend=backend)
        times = tuple(1000 * milliseconds[size] for size in sizes)
        return cls(
            key=request.key,
            request=request,
            partition="whole",
            batch_sizes=sizes,
            latency=(VgpuLatency(divisor=1, median_micros=(times,)),),
            cuts=(),
        )

    @property
    def identity(self) -> tuple[str, str]:
        """What all stages of a pipeline have in common: the cut, and the content of the model."""
        return self.partition, self.content or ""

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.cuts) + 1

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        if not self.batch_sizes:
            raise ValueError("a profile needs at least one batch size: profile the model again")
        if list(self.batch_sizes) != sorted(set(self.batch_sizes)):
            raise ValueError("batch_sizes must increase")
        divisors = [vgpu.divisor for vgpu in self.latency]
        if len(set(divisors)) < len(divisors):
            raise ValueError(f"latency has several entries of one divisor ({divisors}): keep one of each")
        if len(self.memory) not in (0, self.blocks):
            raise ValueError(f"memory must be empty, or have one entry for each of the {self.blocks} blocks")
        for vgpu in self.latency:
            for name, rows in (("latency", vgpu.median_micros), ("spread", vgpu.spread)):
                if (rows or name == "latency") and (
                    len(rows) != self.blocks or any(len(row) != len(self.batch_sizes) for row in rows)
                ):
                    raise ValueError(
                        f"{name} of divisor {vgpu.divisor} must be "
                        f"{self.blocks} blocks x {len(self.batch_sizes)} batch sizes"
                    )
            if any(sum(column) < 1 for column in zip(*vgpu.median_micros, strict=True)):
                raise ValueError(
                    f"latency of divisor {vgpu.divisor} has a batch that takes less than 1 us, which no accelerator "
                    "does: profile the model again"
                )
        if len(self.output_names) not in (0, len(self.outputs)):
            raise ValueError(f"output_names must be empty, or have one for each of the {len(self.outputs)} outputs")
        if not self.latency:
            raise ValueError("a profile needs latencies of at least one vGPU divisor")
        return self

    def differences(self, request: ProfileRequest) -> tuple[str, ...]:
        """In what this is not a profile of `request`: a sentence for each point; empty if it is one."""
        wrong = []
        if changed := [
            name for name in type(request).model_fields if getattr(self.request, name) != getattr(request, name)
        ]:
            wrong.append(f"it is a profile of another {', '.join(changed)}")
        if self.key != request.key:
            wrong.append(f"its key is {self.key}, not {request.key}")
        if self.batch_sizes != request.batch_sizes:
            wrong.append(f"it has batch sizes {list(self.batch_sizes)}, not {list(request.batch_sizes)}")
        if self.blocks > request.blocks:
            wrong.append(f"it has {self.blocks} blocks, and the request at most {request.blocks}")
        divisors = sorted(vgpu.divisor for vgpu in self.latency)
        if not {request.divisors[0]} <= set(divisors) <= set(request.divisors):
            wrong.append(f"it has vGPU divisors {divisors}, not {list(request.divisors)}")
        return tuple(wrong)

    def memory_bytes(self, first: int, end: int, batch: int) -> tuple[int, int]:
        """What the weights of blocks [first, end) take, and a batch besides; zeros where it was not measured."""
        blocks = self.memory[first:end]
        weights = sum(block.weights_bytes for block in blocks)
        return weights, batch * max((block.activation_bytes for block in blocks), default=0)

    def divisor(self, divisor: int) -> VgpuLatency | None:
        """The times for one vGPU divisor, if it was measured."""
        return next((v for v in self.latency if v.divisor == divisor), None)


class ProfilingPhase(StrEnum):
    """State of the profiling of one pair of model and pool."""

    RUNNING = "Running"
    WAITING = "Waiting"
    GIVEN_UP = "GivenUp"


class ProfilingProgress(StatusModel):
    """A profile that is being made, or could not be made."""

    module: str = Field(description="The module whose model is profiled.")
    pool: str = Field(description="The GPUPool.")
    key: str = Field(description="Content key of the profile.")
    attempt: int = Field(ge=0, description="Number of the last run, from 1. 0: it is tried again on request.")
    phase: ProfilingPhase = Field(
        description="Running: the run is in progress. Waiting: it failed and is repeated soon. GivenUp: all "
        "attempts failed."
    )
    last_transition_time: Timestamp = Field(description="When `phase` last changed.")
    message: str = Field(default="", max_length=1024, description="Why the last attempt failed.")
