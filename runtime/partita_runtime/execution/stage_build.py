"""The description of a stage from which a replica builds its executor, as JSON-compatible data."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from partita_api.meta import SpecModel, is_unset
from partita_api.profile import Cut, Profile
from partita_api.session.execution import Backend, CutDType, common_weights
from partita_api.session.module import Inputs, ModelSource, NamedInput, TensorSpec, specs_of
from partita_runtime.models.layers import at_cut
from partita_runtime.scheduling.plan import stage_latency


class Device(StrEnum):
    """The device of a stage."""

    CPU = "cpu"
    CUDA = "cuda"
    """CUDA if there is a device; else the CPU, with a warning."""


class EmulatedStage(SpecModel):
    """A stage that takes the profiled time and computes nothing."""

    latency_micros: tuple[int, ...] = Field(min_length=1, description="Time of a batch of b samples at index b - 1.")
    inputs: tuple[TensorSpec, ...] = Field(min_length=1, description="Input tensors.")
    outputs: tuple[TensorSpec, ...] = Field(min_length=1, description="Output tensors, all zeros.")


class StageBuild(SpecModel):
    """One stage: blocks [first, end) of a model, and how to run them."""

    model: ModelSource
    input: TensorSpec | None = Field(default=None, description="The model's input, not that of this stage.")
    inputs: tuple[NamedInput, ...] | None = Field(
        default=None, exclude_if=is_unset, description="... or its inputs, if it has several."
    )
    blocks: int = Field(ge=1, le=20, description="Number of blocks to cut the model into, as in its profile.")
    first: int = Field(default=0, ge=0)
    end: int | None = Field(default=None, ge=1, description="Default: to the last block.")
    partition: str | None = Field(default=None, description="Digest of the cut of the profile; another cut is refused.")
    content: str | None = Field(
        default=None, description="Content of the model of the profile; a model of other content is refused."
    )
    backend: Backend = Backend.EAGER
    device: Device = Device.CPU
    cut_dtype: CutDType = CutDType.FP16
    max_batch: int = Field(default=16, ge=1, le=1024)
    any_size: bool = Field(
        default=False, description="Compute batches of smaller samples at their size, if the backend can."
    )
    threads: int = Field(default=1, ge=1, description="CPU threads for one batch.")
    latency_micros: tuple[int, ...] | None = Field(
        default=None, description="Emulate the speed only: outputs of a batch of b samples wait for the time at b - 1."
    )
    emulation: EmulatedStage | None = Field(default=None, description="Emulate: the model is not loaded.")

    @property
    def takes(self) -> Inputs:
        """The inputs of the model, not of this stage."""
        if self.inputs is not None:
            return self.inputs
        assert self.input is not None  # it has one of the two
        return self.input

    @property
    def weights(self) -> tuple[object, ...] | None:
        """Identifies the weights that stages of one process have in memory once; None if this one has its own."""
        common = common_weights(self.model, self.backend)
        return None if common is None else (common, self.content, self.blocks, self.first, self.end)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.input is None) == (self.inputs is None):
            raise ValueError("a model has one tensor in input, or several in inputs")
        if self.end is not None and self.end <= self.first:
            raise ValueError(f"blocks [{self.first}, {self.end}) are empty; end must be above first")
        if self.emulation is not None and self.latency_micros is not None:
            raise ValueError("either a stage or only its speed is emulated, and not both")
        times = self.latency_micros if self.emulation is None else self.emulation.latency_micros
        if times is not None and len(times) < self.max_batch:
            raise ValueError(f"emulation has times for batches up to {len(times)}, not {self.max_batch}")
        return self


def batch_latencies(profile: Profile, first: int, end: int, *, divisor: int = 1, max_batch: int) -> tuple[int, ...]:
    """Profiled microseconds of blocks [first, end) on a vGPU of 1/divisor; a batch of b samples is at index b - 1.

    Raises KeyError or ValueError like `stage_latency`.
    """
    return tuple(round(stage_latency(profile, first, end, divisor, batch)) for batch in range(1, max_batch + 1))


def emulated_stage(
    profile: Profile, first: int, end: int, *, divisor: int = 1, max_batch: int, cut_dtype: CutDType = CutDType.FP16
) -> EmulatedStage:
    """Blocks [first, end) with the times of `profile`, on a vGPU of 1/divisor.

    If the profile lacks the tensors that cross a cut, one flat tensor with the same number of bytes replaces them.
    Raises KeyError or ValueError like `stage_latency`.
    """
    return EmulatedStage(
        latency_micros=batch_latencies(profile, first, end, divisor=divisor, max_batch=max_batch),
        inputs=_crossing(profile.cuts[first - 1], cut_dtype) if first else specs_of(profile.request.takes),
        outputs=_crossing(profile.cuts[end - 1], cut_dtype) if end < profile.blocks else profile.outputs,
    )


def _crossing(cut: Cut, cut_dtype: CutDType) -> tuple[TensorSpec, ...]:
    specs = cut.specs or (TensorSpec(shape=(max(1, cut.bytes // 4),)),)
    return tuple(at_cut(spec, cut_dtype) for spec in specs)
