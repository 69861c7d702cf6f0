"""Templates: candidate pooled pipelines of one module, from its profiles.

A template is a sequence of stages with one batch size. Each stage is a range of blocks on vGPUs of one pool
(PPipe, section 5.3). Its times per stage come from the profile:

    latency    = sum of the blocks' medians, plus batch * bytes(cut) * 8 / bandwidth to the next stage
    throughput = min(batch / latency, caps of the links on both sides)       for one vGPU
    link cap   = 1 / (time of one sample on the node's link * vGPUs that share the node)

A Harpagon or Piccolo configuration <batch, duration, hardware> is a template of one stage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Final

from partita_api.gpupool import SharingMode
from partita_api.profile import Profile
from partita_planner.problem import Pool
from partita_planner.solver.tolerances import ROUNDING

NO_LIMIT: Final = 10**15
"""More microseconds than any template takes."""


@dataclass(frozen=True)
class TemplateStage:
    """One stage: blocks [first, end) on vGPUs of 1/divisor of a GPU of the pool."""

    first: int
    end: int
    pool: str
    divisor: int
    latency_micros: int
    """Execution of one batch."""
    transfer_micros: int
    """Moving one batch to the next stage; 0 for the last."""
    throughput: float
    """Samples per second of one vGPU, links included."""

    @property
    def gpu_throughput(self) -> float:
        """Samples per second of one whole GPU, divided into vGPUs."""
        return self.divisor * self.throughput

    @cached_property
    def _hash(self) -> int:
        return hash((self.first, self.end, self.pool, self.divisor, self.latency_micros, self.throughput))

    def __hash__(self) -> int:
        """Computed once: stages are keys of many tables."""
        return self._hash


@dataclass(frozen=True)
class Template:
    """A pooled pipeline without its replica counts."""

    batch: int
    collection_micros: int
    """How long the first sample of a batch waits for the last one."""
    stages: tuple[TemplateStage, ...]

    @cached_property
    def latency_micros(self) -> int:
        """Worst case from a sample's arrival to its answer: collection, execution and transfers."""
        return self.collection_micros + sum(s.latency_micros + s.transfer_micros for s in self.stages)

    @cached_property
    def _hash(self) -> int:
        return hash((self.batch, self.collection_micros, self.stages))

    def __hash__(self) -> int:
        """Computed once: templates are keys of many tables."""
        return self._hash

    def replicas(self, rate: float) -> tuple[int, ...]:
        """The fewest vGPUs of each stage that serve `rate` samples per second."""
        return tuple(max(1, ceil(rate / stage.throughput - ROUNDING)) for stage in self.stages)

    def throughput(self, replicas: Sequence[int]) -> float:
        """Samples per second with so many vGPUs on each stage."""
        return min(n * stage.throughput for n, stage in zip(replicas, self.stages, strict=True))


@dataclass(frozen=True)
class TemplateLimits:
    """Limits on the templates to enumerate."""

    budget_micros: int
    """The longest total of collection, execution and transfers."""
    collection: Callable[[int], int]
    """Microseconds of collecting a batch of this size."""
    max_stages: int = 2
    max_batch_size: int = 1024
    whole_gpus: bool = False
    """Whether a stage owns whole GPUs (then only its throughput per GPU counts), or any number of vGPUs."""
    undivided: bool = False
    """Whether only undivided GPUs are used."""
    latency_counts: bool = True
    """Whether a faster template may be needed although a slower one within the budget serves more."""


@dataclass(frozen=True)
class ModuleClass:
    """A module on one pool: its profile, and the pool's vGPUs, links and memory."""

    pool: Pool
    profile: Profile
    fp16_cuts: bool

    @property
    def divisors(self) -> tuple[int, ...]:
        """vGPU divisors that the pool allows and the profile has."""
        sharing = self.pool.spec.sharing
        most = sharing.max_divisor if sharing.mode is SharingMode.MPS else 1
        return tuple(sorted(v.divisor for v in self.profile.latency if v.divisor <= most))

    @cached_property
    def bandwidth(self) -> float:
        """Bits per second of one node's network."""
        return float(self.pool.spec.bandwidth)

    def cut_bytes(self, position: int) -> int:
        """Bytes of one sample that are sent before block `position`."""
        if position in (0, self.profile.blocks):
            return 0
        full = self.profile.cuts[position - 1].bytes
        return full // 2 if self.fp16_cuts else full

    def block_micros(self, divisor: int, batch: int) -> tuple[float, ...]:
        """Time of every block for a batch that was measured."""
        vgpu = self.profile.divisor(divisor)
        assert vgpu is not None, f"divisor {divisor} was taken from the profile"
        column = self.profile.batch_sizes.index(batch)
        return tuple(row[column] for row in vgpu.median_micros)

    def link_cap(self, position: int, divisor: int) -> float:
        """Samples per second that one vGPU's share of its node's link carries at this cut."""
        bits = self.cut_bytes(position) * 8
        return self.bandwidth / (bits * divisor * self.pool.spec.gpus_per_node) if bits else inf

    def fits(self, first: int, end: int, divisor: int, batch: int) -> bool:
        """Whether weights and the largest activations of blocks [first, end) fit one vGPU; True where unknown."""
        if self.pool.spec.memory is None or not self.profile.memory:
            return True
        blocks = self.profile.memory[first:end]
        needed = sum(b.weights_bytes for b in blocks) + batch * max(b.activation_bytes for b in blocks)
        return needed * divisor <= float(self.pool.spec.memory)


def module_classes(
    module: str, pools: Sequence[Pool], profiles: Mapping[tuple[str, str], Profile], fp16_cuts: bool
) -> tuple[ModuleClass, ...]:
    """The pools with GPUs on which a module has a profile."""
    return tuple(
        ModuleClass(pool, profiles[module, pool.name], fp16_cuts)
        for pool in pools
        if pool.gpus > 0 and (module, pool.name) in profiles
    )
