"""GPU classes by their data sheets, and profiles that are derived for them from measurements on a CPU.

A block is taken to use the same share of the class's roofline as of the CPU's; the start of its kernels comes on top.
So these profiles are estimates: no GPU was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from benchmarks.planner.savings_cases.measured import BlockWork, CpuSpeed, MeasuredModel

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPoolSpec, Sharing, SharingMode
from partita_api.profile import Profile, VgpuLatency
from partita_planner.problem import Pool

BATCH_SIZES: Final = (1, 2, 4, 8, 16)
DIVISORS: Final = (1, 2)
"""Of the vGPUs."""
REACHED: Final = 0.5
"""Of a data sheet's arithmetic in FP32: ViT-B/16 on an H200, docs/benchmarks/gpu.md."""
KERNEL_SECONDS: Final = 5e-6
"""Between the starts of two kernels: ResNet-50 on an H200 with CUDA graphs, docs/benchmarks/gpu.md."""


@dataclass(frozen=True)
class GpuClass:
    """A class of GPUs."""

    name: str
    flops_per_second: float
    """Of FP32, by the data sheet."""
    bytes_per_second: float
    """Of the memory, by the data sheet."""
    memory: str
    price_per_hour: float
    """Of a virtual machine with one of them."""

    def pool(self, gpus: int) -> Pool:
        """A pool of so many GPUs, each in a node of its own."""
        spec = GPUPoolSpec(
            price_per_hour=Quantity(self.price_per_hour),
            memory=Quantity(self.memory),
            bandwidth=Quantity("10G"),
            sharing=Sharing(mode=SharingMode.MPS, max_divisor=max(DIVISORS)),
        )
        return Pool(self.name, spec, gpus)


CLASSES: Final[Mapping[str, GpuClass]] = MappingProxyType(
    {
        each.name: each
        for each in (
            GpuClass("l4", 30.3e12, 300e9, "24Gi", 0.805),
            GpuClass("t4", 8.1e12, 320e9, "16Gi", 0.526),
        )
    }
)


def derived(model: MeasuredModel, cpu: CpuSpeed, gpu: GpuClass) -> Profile:
    """The profile of a model on a GPU class."""
    request = model.profile.request.model_copy(
        update={"pool": gpu.name, "batch_sizes": BATCH_SIZES, "divisors": DIVISORS, "slowdown": None}
    )
    shares = shares_of_roofline(model, cpu)
    latency = tuple(
        VgpuLatency(
            divisor=divisor,
            median_micros=tuple(
                tuple(round(1e6 * _seconds(work, share, gpu, batch, divisor), 3) for batch in BATCH_SIZES)
                for work, share in zip(model.work, shares, strict=True)
            ),
        )
        for divisor in DIVISORS
    )
    return model.profile.model_copy(
        update={"key": request.key, "request": request, "batch_sizes": BATCH_SIZES, "latency": latency}
    )


def shares_of_roofline(model: MeasuredModel, cpu: CpuSpeed) -> list[float]:
    """For each block, the least time by the CPU's roofline divided by the measured time; at most 1."""
    (batch,), (measured,) = model.profile.batch_sizes, model.profile.latency
    least = [work.seconds(batch, cpu.flops_per_second, cpu.bytes_per_second) for work in model.work]
    return [min(1.0, 1e6 * a / b) for a, (b,) in zip(least, measured.median_micros, strict=True)]


def _seconds(work: BlockWork, share: float, gpu: GpuClass, batch: int, divisor: int) -> float:
    computing = divisor * work.seconds(batch, REACHED * gpu.flops_per_second, gpu.bytes_per_second) / share
    return KERNEL_SECONDS * work.kernels + computing
