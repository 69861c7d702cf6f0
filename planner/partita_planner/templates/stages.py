"""Every stage that the pipelines of one module may have, as a table: pool, vGPU size, batch size, blocks and times."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final

import numpy as np

from partita_planner.session.latency import SECOND
from partita_planner.templates.dominance import Candidates, sorted_units, undominated
from partita_planner.templates.pareto import Flags, Floats, Integers
from partita_planner.templates.templates import ModuleClass, TemplateLimits

SLACK: Final = 1e-3
"""Tolerance for float sums in microseconds; whole microseconds are checked later."""


@dataclass(frozen=True)
class VGpuKind:
    """vGPUs of one size of one pool."""

    cls: int
    """Index of the module's class."""
    divisor: int


@dataclass(frozen=True)
class StageTable:
    """The stages of pipelines with some batch sizes, a row each, by batch size and first block."""

    batch: Integers
    """Index of the batch size."""
    first: Integers
    end: Integers
    cls: Integers
    divisor: Integers
    micros: Integers
    """Execution of one batch, rounded up."""
    rate: Floats
    """Samples per second of one vGPU, links included."""
    resource: Integers
    """Number of the stage's resource: a pool, or vGPUs of one size of a pool."""
    unit_rate: Floats
    """Samples per second of one unit of the resource."""
    offsets: Integers
    """[batch * (blocks + 1) + position]: the first row that begins there; the last entry is the number of rows."""
    finishing: Integers
    """With the same index: the first of these rows that ends with the last block."""


@dataclass(frozen=True)
class Ground:
    """The classes of one module with the same content and cut of the model, and the batch sizes for stages."""

    classes: tuple[ModuleClass, ...]
    batches: tuple[int, ...]
    limits: TemplateLimits

    @cached_property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.classes[0].profile.blocks

    @cached_property
    def kinds(self) -> tuple[VGpuKind, ...]:
        """The vGPU sizes that may be used."""
        return tuple(
            VGpuKind(k, divisor)
            for k, cls in enumerate(self.classes)
            for divisor in cls.divisors
            if divisor == 1 or not self.limits.undivided
        )

    @cached_property
    def block_micros(self) -> Floats:
        """[batch][kind][block]: measured times; infinite where a class has none for the batch size."""
        times = np.full((len(self.batches), len(self.kinds), self.blocks), inf)
        for u, kind in enumerate(self.kinds):
            profile = self.classes[kind.cls].profile
            vgpu = profile.divisor(kind.divisor)
            assert vgpu is not None, f"divisor {kind.divisor} was taken from the profile"
            column = {size: i for i, size in enumerate(profile.batch_sizes)}
            measured = np.array(vgpu.median_micros, dtype=np.float64)
            for b, batch in enumerate(self.batches):
                if batch in column:
                    times[b, u] = measured[:, column[batch]]
        return times

    @cached_property
    def collection(self) -> Integers:
        """[batch]: microseconds of collecting it."""
        return np.array([self.limits.collection(batch) for batch in self.batches], dtype=np.int64)

    @cached_property
    def rest(self) -> Floats:
        """[batch][position]: least microseconds of the blocks from there to the end."""
        fastest = self.block_micros.min(axis=1)
        return np.concatenate([np.cumsum(fastest[:, ::-1], axis=1)[:, ::-1], np.zeros((len(fastest), 1))], axis=1)

    @cached_property
    def before(self) -> Floats:
        """[batch][position]: least microseconds of the blocks before it."""
        fastest = self.block_micros.min(axis=1)
        return np.concatenate([np.zeros((len(fastest), 1)), np.cumsum(fastest, axis=1)], axis=1)

    @cached_property
    def transfers(self) -> Integers:
        """[batch][sending class][receiving class][position]: microseconds of moving one batch at this cut."""
        sizes = np.array([[c.cut_bytes(p) for p in range(self.blocks + 1)] for c in self.classes], dtype=np.int64)
        band = np.array([c.bandwidth for c in self.classes])
        slower = np.minimum(band[:, None], band[None, :])
        bits = np.array(self.batches, dtype=np.int64)[:, None, None] * sizes * 8
        moved: Integers = np.ceil(bits[:, :, None, :] * SECOND / slower[None, :, :, None]).astype(np.int64)
        return moved

    @cached_property
    def link_caps(self) -> Floats:
        """[kind][position]: samples per second that one vGPU's share of its node's link carries."""
        return np.array(
            [[self.classes[kind.cls].link_cap(p, kind.divisor) for p in range(self.blocks + 1)] for kind in self.kinds]
        )

    def fits(self, first: int) -> Flags:
        """[batch][kind][end - first - 1]: whether blocks from `first` on fit a vGPU's memory; True where unknown."""
        found = np.ones((len(self.batches), len(self.kinds), self.blocks - first), dtype=np.bool_)
        for u, kind in enumerate(self.kinds):
            cls = self.classes[kind.cls]
            if cls.pool.spec.memory is not None and cls.profile.memory:
                blocks = cls.profile.memory[first:]
                weights = np.cumsum([float(m.weights_bytes) for m in blocks])
                largest = np.maximum.accumulate([float(m.activation_bytes) for m in blocks])
                needed = weights + np.array(self.batches)[:, None] * largest
                found[:, u] = needed * kind.divisor <= float(cls.pool.spec.memory)
        return found

    def stages(self) -> StageTable:
        """All stages of pipelines within the budget, except superfluous ones."""
        most_stages = self.limits.max_stages
        latest = self.limits.budget_micros - self.collection + SLACK
        batch_sizes = np.array(self.batches, dtype=np.float64)
        columns, rates = [np.zeros((5, 0), dtype=np.int64)], [np.zeros(0)]
        for first in range(self.blocks if most_stages > 1 else 1):
            ends = np.arange(first + 1, self.blocks + 1)
            around = self.before[:, first, None] + self.rest[:, ends]
            sums = np.cumsum(self.block_micros[:, :, first:], axis=2)
            possible = self.fits(first) & (around[:, None] + sums <= latest[:, None, None])
            if most_stages == 1 or (most_stages == 2 and first > 0):
                possible[:, :, :-1] = False
            b, u, e = np.nonzero(possible)
            micros = np.maximum(1, np.ceil(sums[b, u, e])).astype(np.int64)
            cap = np.minimum(self.link_caps[u, first], self.link_caps[u, ends[e]])
            columns.append(np.stack([b, np.full_like(b, first), ends[e], u, micros]))
            rates.append(np.minimum(batch_sizes[b] * SECOND / micros, cap))
        return self._table(*np.concatenate(columns, axis=1), rate=np.concatenate(rates))

    def _table(
        self, batch: Integers, first: Integers, end: Integers, u: Integers, micros: Integers, *, rate: Floats
    ) -> StageTable:
        cls = np.array([kind.cls for kind in self.kinds], dtype=np.int64)[u]
        divisor = np.array([kind.divisor for kind in self.kinds], dtype=np.int64)[u]
        resource = cls if self.limits.whole_gpus else u
        unit_rate = rate * divisor if self.limits.whole_gpus else rate
        width = self.blocks + 1
        place = batch * width + first
        kept = undominated(
            Candidates(
                (place * width + end) * len(self.classes) + cls,
                micros,
                sorted_units(resource[:, None], unit_rate[:, None]),
                divisor,
            )
        )
        kept = kept[np.lexsort((u[kept], end[kept], place[kept]))]
        offsets = np.searchsorted(place[kept], np.arange(len(self.batches) * width + 1))
        last_block = np.concatenate([[0], np.cumsum(end[kept] < self.blocks)])
        finishing = offsets[:-1] + np.diff(last_block[offsets])
        return StageTable(
            batch=batch[kept],
            first=first[kept],
            end=end[kept],
            cls=cls[kept],
            divisor=divisor[kept],
            micros=micros[kept],
            rate=rate[kept],
            resource=resource[kept],
            unit_rate=unit_rate[kept],
            offsets=offsets,
            finishing=finishing,
        )


def grounds(classes: Sequence[ModuleClass], limits: TemplateLimits) -> tuple[Ground, ...]:
    """The module's classes grouped by the model's content and cut, with the batch sizes of each group."""
    found = []
    for identity in sorted({c.profile.identity for c in classes}):
        alike = tuple(c for c in classes if c.profile.identity == identity and c.divisors)
        batches = sorted({b for c in alike for b in c.profile.batch_sizes if b <= limits.max_batch_size})
        if alike and batches:
            found.append(Ground(alike, tuple(batches), limits))
    return tuple(found)
