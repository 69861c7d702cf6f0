"""Profile: what one model costs on one GPU class, block by block. Kept in a ConfigMap under its content key."""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from partita_api.digests import digest
from partita_api.meta import SpecModel
from partita_api.session.module import ModelSource, TensorSpec

PROFILE_FILE: Final = "profile.json"
"""The key of a profile ConfigMap's data that holds the document."""


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
    input: TensorSpec
    blocks: int = Field(ge=1, le=20)
    batch_sizes: tuple[int, ...] = Field(min_length=1, description="Increasing batch sizes to time.")
    divisors: tuple[int, ...] = Field(default=(1,), min_length=1, description="vGPU divisors to time.")
    pool: str
    backend: str = "Eager"
    slowdown: float | None = None
    curve: tuple[int, int] | None = Field(default=None, description="(alpha, beta) in microseconds, if emulated.")
    versions: dict[str, str] = Field(default={}, description="Library versions that matter, such as torch's.")
    pod: ProfiledPod | None = Field(default=None, description="What a pod template changes, if it changes anything.")

    @property
    def key(self) -> str:
        """The content key."""
        return digest(self)


class VgpuLatency(SpecModel):
    """Times of every block on a vGPU of 1/divisor of an accelerator."""

    divisor: int = Field(ge=1, le=8)
    median_micros: tuple[tuple[float, ...], ...] = Field(description="[block][batch size] medians in microseconds.")
    spread: tuple[tuple[float, ...], ...] = Field(
        default=(), description="[block][batch size] interquartile range divided by the median."
    )


class Cut(SpecModel):
    """What crosses between two neighbouring blocks, for one sample."""

    bytes: int = Field(ge=0, description="Bytes of one sample's tensors at full precision.")
    tensors: int = Field(default=1, ge=1, description="Number of tensors.")
    specs: tuple[TensorSpec, ...] = Field(default=(), description="Each of them, at full precision; empty if unknown.")


class BlockMemory(SpecModel):
    """Memory of one block."""

    weights_bytes: int = Field(ge=0)
    activation_bytes: int = Field(ge=0, description="Largest live activations of one sample.")


class Profile(SpecModel):
    """Measured (or emulated) latency of a model's blocks on one GPU class.

    `latency` has one entry a vGPU divisor; all arrays in it are [block][batch size] in the order of `batch_sizes`.
    """

    schema_version: int = 1
    key: str
    request: ProfileRequest
    partition: str = Field(description="Digest of the model's cut into blocks; equal on every class.")
    batch_sizes: tuple[Annotated[int, Field(ge=1)], ...]
    latency: tuple[VgpuLatency, ...]
    cuts: tuple[Cut, ...] = Field(description="One between each pair of neighbouring blocks: blocks - 1.")
    memory: tuple[BlockMemory, ...] = ()
    outputs: tuple[TensorSpec, ...] = Field(default=(), description="Tensors that the last block gives for one sample.")
    environment: dict[str, str] = Field(default={}, description="Device, library versions and date, for people.")

    @classmethod
    def of_whole_model(
        cls, model: ModelSource, input: TensorSpec, pool: str, milliseconds: Mapping[int, float]
    ) -> Self:
        """The profile of a model as one block on whole accelerators; `milliseconds` of a batch by its size."""
        sizes = tuple(sorted(milliseconds))
        request = ProfileRequest(model=model, input=input, blocks=1, batch_sizes=sizes, pool=pool)
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
            if len(vgpu.median_micros) != self.blocks or any(
                len(row) != len(self.batch_sizes) for row in vgpu.median_micros
            ):
                raise ValueError(
                    f"latency of divisor {vgpu.divisor} must be "
                    f"{self.blocks} blocks x {len(self.batch_sizes)} batch sizes"
                )
            wrong = [micros for row in vgpu.median_micros for micros in row if not (isfinite(micros) and micros >= 0)]
            if wrong:
                raise ValueError(
                    f"latency of divisor {vgpu.divisor} has {wrong[0]:g} us, not a valid time: profile the model again"
                )
        if not self.latency:
            raise ValueError("a profile needs latencies of at least one vGPU divisor")
        return self

    def memory_bytes(self, first: int, end: int, batch: int) -> tuple[int, int]:
        """What the weights of blocks [first, end) take, and a batch besides; zeros where it was not measured."""
        blocks = self.memory[first:end]
        weights = sum(block.weights_bytes for block in blocks)
        return weights, batch * max((block.activation_bytes for block in blocks), default=0)

    def divisor(self, divisor: int) -> VgpuLatency | None:
        """The times for one vGPU divisor, if it was measured."""
        return next((v for v in self.latency if v.divisor == divisor), None)
