"""Candidate pooled pipelines of one module, from its profiles.

A template is stages in a row, each with a range of blocks on vGPUs of one pool, and one batch size for all of them
(PPipe, section 5.3). Its times per stage come from the profile:

    latency    = sum of the blocks' medians, plus batch * bytes(cut) * 8 / bandwidth to the next stage
    throughput = min(batch / latency, caps of the links on both sides)       for one vGPU
    link cap   = 1 / (time of one sample on the node's link * vGPUs that share the node)

A Harpagon or Piccolo configuration <batch, duration, hardware> is a template of one stage.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf
from typing import TypeVar

from partita_api.gpupool import SharingMode
from partita_api.profile import Profile
from partita_planner.dominance import Costed, undominated
from partita_planner.latency import SECOND
from partita_planner.problem import Pool

T = TypeVar("T")
NO_LIMIT = 10**15
SIZED_STAGES = 2
"""Up to so many stages, pipelines are told apart by their vGPU sizes unless more are asked for."""


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

    def replicas(self, rate: float) -> tuple[int, ...]:
        """The fewest vGPUs of each stage that serve `rate` samples per second."""
        return tuple(max(1, ceil(rate / stage.throughput - 1e-9)) for stage in self.stages)

    def throughput(self, replicas: Sequence[int]) -> float:
        """Samples per second with so many vGPUs on each stage."""
        return min(n * stage.throughput for n, stage in zip(replicas, self.stages, strict=True))


@dataclass(frozen=True)
class TemplateLimits:
    """Which templates are of interest."""

    budget_micros: int
    """The most that collection, execution and transfers may take together."""
    collection: Callable[[int], int]
    """Microseconds that collecting a batch of this size takes."""
    max_stages: int = 2
    max_batch_size: int = 1024
    whole_gpus: bool = False
    """Whether a stage owns whole GPUs (then only throughput per GPU counts), or any number of vGPUs."""
    sized_stages: int = SIZED_STAGES
    """Up to so many stages, pipelines are told apart by their vGPU sizes."""
    undivided: bool = False
    """Whether only undivided GPUs are used."""
    latency_counts: bool = True
    """Whether a faster template may be needed although a slower one, within the budget, does more."""


@dataclass(frozen=True)
class ModuleClass:
    """What a module costs on one pool: its profile, the pool's vGPUs, links and memory."""

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
        """Bytes of one sample that cross in front of block `position`, as they are sent."""
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


def enumerate_templates(classes: Sequence[ModuleClass], limits: TemplateLimits) -> tuple[Template, ...]:
    """All templates within the limits that no other one makes superfluous, in a stable order.

    Only measured batch sizes are candidates. A pipeline crosses pools only where both profiles cut the model alike.
    Of pipelines with more than `sized_stages` stages on vGPUs of several sizes there are tens of thousands; of those,
    the ones that are undominated by throughput per whole GPU are in.
    """
    sizes = max((len(c.divisors) for c in classes), default=1)
    if limits.whole_gpus or limits.undivided or sizes == 1 or limits.max_stages <= limits.sized_stages:
        return _enumerate(classes, limits)
    sized = _enumerate(classes, replace(limits, max_stages=limits.sized_stages))
    longer = [t for t in _enumerate(classes, replace(limits, whole_gpus=True)) if len(t.stages) > limits.sized_stages]
    every = [_costed(t.stages, t.latency_micros, limits, t) for t in (*sized, *longer)]
    return tuple(kept.item for kept in undominated(every, limits.latency_counts))


def undominated_by_gpus(templates: Sequence[Template]) -> tuple[Template, ...]:
    """Those that matter when any fraction of a GPU can be had and latency does not count: for linear relaxations."""
    rates = [(t, tuple(sorted((s.pool, s.gpu_throughput) for s in t.stages))) for t in templates]
    kept = undominated([Costed(t, t.latency_micros, rate) for t, rate in rates], latency_counts=False)
    return tuple(costed.item for costed in kept)


def fastest_micros(classes: Sequence[ModuleClass], limits: TemplateLimits) -> int | None:
    """The least latency of any template, the budget apart; None if the model fits nowhere."""
    found: list[int] = []
    for partition in sorted({c.profile.partition for c in classes}):
        alike = [c for c in classes if c.profile.partition == partition]
        for batch in sorted({b for c in alike for b in c.profile.batch_sizes if b <= limits.max_batch_size}):
            measured = [c for c in alike if batch in c.profile.batch_sizes]
            for stages in range(1, limits.max_stages + 1):
                one_batch = replace(limits, budget_micros=min(found, default=NO_LIMIT), max_stages=stages)
                found.extend(t.latency_micros for t in _of_batch(measured, batch, one_batch))
    return min(found, default=None)


def _enumerate(classes: Sequence[ModuleClass], limits: TemplateLimits) -> tuple[Template, ...]:
    found: list[Costed[Template]] = []
    for partition in sorted({c.profile.partition for c in classes}):
        alike = [c for c in classes if c.profile.partition == partition]
        for batch in sorted({b for c in alike for b in c.profile.batch_sizes if b <= limits.max_batch_size}):
            measured = [c for c in alike if batch in c.profile.batch_sizes]
            found.extend(_costed(t.stages, t.latency_micros, limits, t) for t in _of_batch(measured, batch, limits))
    return tuple(kept.item for kept in undominated(found, limits.latency_counts))


@dataclass(frozen=True)
class _Label:
    """The first stages of a pipeline, up to a block."""

    stages: tuple[TemplateStage, ...]
    micros: int
    """Execution and transfers so far, without the transfer that follows."""
    last: ModuleClass | None


def _of_batch(classes: Sequence[ModuleClass], batch: int, limits: TemplateLimits) -> Iterator[Template]:
    """Templates of one batch size: label setting over block positions."""
    vgpus = [_VGpu.of(c, v, batch) for c in classes for v in c.divisors if v == 1 or not limits.undivided]
    if not vgpus:
        return
    collection = limits.collection(batch)
    blocks = classes[0].profile.blocks
    rest = [sum(min(v.micros[i] for v in vgpus) for i in range(p, blocks)) for p in range(blocks + 1)]
    labels: list[list[_Label]] = [[] for _ in range(blocks + 1)]
    labels[0] = [_Label((), 0, None)]
    for position in range(blocks):
        for label in _kept(labels[position], limits):
            last_stage = len(label.stages) + 1 == limits.max_stages
            for end in (blocks,) if last_stage else range(position + 1, blocks + 1):
                for vgpu in vgpus:
                    longer = vgpu.extend(label, position, end)
                    in_time = collection + longer.micros + rest[end] <= limits.budget_micros
                    if in_time and vgpu.cls.fits(position, end, vgpu.divisor, batch):
                        labels[end].append(longer)
    for label in _kept(labels[blocks], limits):
        yield Template(batch, collection, label.stages)


@dataclass(frozen=True)
class _VGpu:
    """One size of vGPU of a pool, running batches of one size."""

    cls: ModuleClass
    divisor: int
    batch: int
    micros: tuple[float, ...]
    """Time of every block."""

    @staticmethod
    def of(cls: ModuleClass, divisor: int, batch: int) -> "_VGpu":
        return _VGpu(cls, divisor, batch, cls.block_micros(divisor, batch))

    def extend(self, label: _Label, first: int, end: int) -> _Label:
        """`label` with a stage of blocks [first, end) on such vGPUs after it."""
        micros = max(1, ceil(sum(self.micros[first:end])))
        cap = min(self.cls.link_cap(first, self.divisor), self.cls.link_cap(end, self.divisor))
        throughput = min(self.batch * SECOND / micros, cap)
        stage = TemplateStage(first, end, self.cls.pool.name, self.divisor, micros, 0, throughput)
        if label.last is None:
            return _Label((stage,), micros, self.cls)
        bits = self.batch * label.last.cut_bytes(first) * 8
        moved = ceil(bits * SECOND / min(self.cls.bandwidth, label.last.bandwidth))
        *before, sender = label.stages
        return _Label((*before, replace(sender, transfer_micros=moved), stage), label.micros + moved + micros, self.cls)


def _kept(labels: Sequence[_Label], limits: TemplateLimits) -> list[_Label]:
    """The labels of one position that may lead to an undominated template."""
    by_pool: dict[str, list[Costed[_Label]]] = {}
    for label in labels:
        if label.last is None:
            return list(labels)
        by_pool.setdefault(label.last.pool.name, []).append(_costed(label.stages, label.micros, limits, label))
    return [kept.item for group in by_pool.values() for kept in undominated(group)]


def _costed(stages: Sequence[TemplateStage], micros: int, limits: TemplateLimits, item: T) -> Costed[T]:
    if limits.whole_gpus:
        rates = [(stage.pool, stage.gpu_throughput) for stage in stages]
    else:
        rates = [(f"{stage.pool}/{stage.divisor}", stage.throughput) for stage in stages]
    return Costed(item, micros, tuple(sorted(rates)))
