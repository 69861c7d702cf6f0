"""All templates of a module within its limits, by joining stages where one's blocks end and another's begin.

Pipelines grow by one stage at a time, all batch sizes at once. The first stages of pipelines (`Beginnings`) are joined
with every stage that can follow. Those that exceed the budget, or that another makes superfluous (`dominance`), are
dropped. So all pipelines of few stages are known before longer ones are built. If time runs out, the shorter ones are
the result, marked as incomplete.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.templates.dominance import NO_STAGE, Candidates, Units, portions, sorted_units, undominated
from partita_planner.templates.pareto import Flags, Integers, ranges
from partita_planner.templates.stages import SLACK, Ground, StageTable, grounds
from partita_planner.templates.templates import NO_LIMIT, ModuleClass, Template, TemplateLimits, TemplateStage

JOINED_AT_ONCE: Final = 400_000
"""Rows of one join; the deadline is checked between joins."""
NO_ROW: Final = -1


@dataclass(frozen=True)
class Enumeration:
    """Templates, and whether these are all."""

    templates: tuple[Template, ...]
    complete: bool
    """False if time ran out: templates with the most stages are missing."""


def enumerate_templates(
    classes: Sequence[ModuleClass], limits: TemplateLimits, deadline: Deadline | None = None
) -> Enumeration:
    """The templates within the limits that no other template makes superfluous, in a stable order.

    Only measured batch sizes are candidates. A pipeline crosses pools only if both profiles cut the model in the same
    way. The result has all templates with a given number of stages, or none. Those of one stage are always there; the
    others are complete only if they are found by `deadline`.
    """
    fields = [_Field.of(ground) for ground in grounds(classes, limits)]
    try:
        for stages in range(2, limits.max_stages + 1):
            fields = [field.joined(stages == limits.max_stages, deadline) for field in fields]
        complete = True
    except OutOfTimeError:
        complete = False
    templates = [t for field in fields for t in field.templates()]
    if len(fields) > 1:
        templates = [templates[row] for row in _of_all_grounds(fields, limits)]
    return Enumeration(tuple(templates), complete)


def enumerate_fewer(
    classes: Sequence[ModuleClass], limits: TemplateLimits, sized_stages: int, deadline: Deadline | None = None
) -> Enumeration:
    """The same, but with more than `sized_stages` stages only the best templates for each whole GPU.

    There are thousands of pipelines of many stages on vGPUs of several sizes: too many for some searches.
    """
    if limits.whole_gpus or limits.max_stages <= sized_stages:
        return enumerate_templates(classes, limits, deadline)
    sized = enumerate_templates(classes, replace(limits, max_stages=sized_stages), deadline)
    longer = enumerate_templates(classes, replace(limits, whole_gpus=True), deadline)
    templates = [*sized.templates, *(t for t in longer.templates if len(t.stages) > sized_stages)]
    kinds = {kind: i for i, kind in enumerate(sorted({(s.pool, s.divisor) for t in templates for s in t.stages}))}
    resources = np.full((len(templates), limits.max_stages), NO_ROW)
    rates = np.zeros(resources.shape)
    for row, template in enumerate(templates):
        for column, stage in enumerate(template.stages):
            resources[row, column] = kinds[stage.pool, stage.divisor]
            rates[row, column] = stage.throughput
    micros = np.array([t.latency_micros for t in templates], dtype=np.int64)
    counted = micros if limits.latency_counts else np.zeros_like(micros)
    kept = undominated(Candidates(np.zeros_like(micros), counted, sorted_units(resources, rates), micros))
    return Enumeration(tuple(templates[row] for row in kept.tolist()), sized.complete and longer.complete)


def fastest_micros(classes: Sequence[ModuleClass], limits: TemplateLimits) -> int | None:
    """The least latency of any template without a budget; None if no pool can run the model."""
    found: list[int] = []
    for ground in grounds(classes, replace(limits, budget_micros=NO_LIMIT, whole_gpus=False)):
        table = ground.stages()
        width, classes_count = ground.blocks + 1, len(ground.classes)
        last = np.full((len(ground.batches), width, classes_count), NO_LIMIT, dtype=np.int64)
        first = np.flatnonzero(table.first == 0)
        np.minimum.at(last, (table.batch[first], table.end[first], table.cls[first]), table.micros[first])
        for _ in range(1, limits.max_stages):
            sent = last[:, :, :, None] + ground.transfers.transpose(0, 3, 1, 2)
            arrived = sent.min(axis=2)
            longer = last.copy()
            took = arrived[table.batch, table.first, table.cls] + table.micros
            np.minimum.at(longer, (table.batch, table.end, table.cls), took)
            last = longer
        best = (last[:, -1].min(axis=1) + ground.collection).min()
        if best < NO_LIMIT:
            found.append(int(best))
    return min(found, default=None)


@dataclass(frozen=True)
class Beginnings:
    """The first stages of pipelines, a row each."""

    rows: Integers
    """[pipeline][stage]: row of the stage table, or NO_ROW."""
    last: Integers
    """Row of the last stage."""
    batch: Integers
    end: Integers
    micros: Integers
    """Execution and transfers so far, without the transfer that follows."""
    units: Units

    def __getitem__(self, rows: Integers | Flags | slice) -> "Beginnings":
        return Beginnings(
            self.rows[rows], self.last[rows], self.batch[rows], self.end[rows], self.micros[rows], self.units[rows]
        )

    @staticmethod
    def together(parts: Sequence["Beginnings"]) -> "Beginnings":
        """The rows of all parts."""
        width = max(part.rows.shape[1] for part in parts)
        rows = [np.pad(p.rows, ((0, 0), (0, width - p.rows.shape[1])), constant_values=NO_ROW) for p in parts]
        return Beginnings(
            np.concatenate(rows),
            np.concatenate([p.last for p in parts]),
            np.concatenate([p.batch for p in parts]),
            np.concatenate([p.end for p in parts]),
            np.concatenate([p.micros for p in parts]),
            np.concatenate([_widened(p.units, width) for p in parts]),
        )


@dataclass(frozen=True)
class _Field:
    """The state of the enumeration over one ground."""

    ground: Ground
    table: StageTable
    open: Beginnings
    """First stages that may grow, with the number of stages that were joined last."""
    shorter: Beginnings
    """First stages that could grow, with fewer stages: they may make longer ones superfluous."""
    finished: Beginnings
    """Whole pipelines."""

    @classmethod
    def of(cls, ground: Ground) -> "_Field":
        """The pipelines of one stage."""
        table = ground.stages()
        rows = np.flatnonzero(table.first == 0)
        units = sorted_units(table.resource[rows, None], table.unit_rate[rows, None])
        begun = Beginnings(rows[:, None], rows, table.batch[rows], table.end[rows], table.micros[rows], units)
        whole = begun.end == ground.blocks
        in_time = begun.micros + ground.collection[begun.batch] <= ground.limits.budget_micros
        field = cls(ground, table, begun[~whole], begun[:0], begun[whole & in_time])
        return replace(field, finished=field.finished[undominated(field._candidates(field.finished))])

    def joined(self, last: bool, deadline: Deadline | None) -> "_Field":
        """With one more stage; `last` if it must end the pipeline. Raises OutOfTimeError."""
        low, high = self._followers(last)
        parts = [self.open[:0]]
        for some in portions(high - low, JOINED_AT_ONCE):
            left, right = ranges(low[some], high[some])
            longer = self._longer(self.open[some][left], right)
            parts.append(longer[undominated(self._candidates(longer), deadline)])
        new = Beginnings.together(parts)
        whole = new.end == self.ground.blocks
        finished = Beginnings.together([self.finished, new[whole]])
        finished = finished[undominated(self._candidates(finished), deadline)]
        shorter = Beginnings.together([self.shorter, self.open])
        growing = Beginnings.together([shorter, new[~whole]])
        kept = undominated(self._candidates(growing), deadline)
        return replace(self, open=growing[kept[kept >= len(shorter.last)]], shorter=shorter, finished=finished)

    def _followers(self, last: bool) -> tuple[Integers, Integers]:
        """For each open row, the range of the stages that can follow."""
        place = self.open.batch * (self.ground.blocks + 1) + self.open.end
        low, high = self.table.offsets[place], self.table.offsets[place + 1]
        return (self.table.finishing[place], high) if last else (low, high)

    def _longer(self, begun: Beginnings, stage: Integers) -> Beginnings:
        """Each row with one more stage, if it keeps the budget."""
        table, ground = self.table, self.ground
        moved = ground.transfers[begun.batch, table.cls[begun.last], table.cls[stage], begun.end]
        micros = begun.micros + moved + table.micros[stage]
        least = ground.collection[begun.batch] + micros + ground.rest[begun.batch, table.end[stage]]
        in_time = least <= ground.limits.budget_micros + SLACK
        begun, stage, micros = begun[in_time], stage[in_time], micros[in_time]
        units = np.concatenate([begun.units, (table.resource + 1j * table.unit_rate)[stage][:, None]], axis=1)
        rows = np.concatenate([begun.rows, stage[:, None]], axis=1)
        return Beginnings(rows, stage, begun.batch, table.end[stage], micros, np.sort(units, axis=1))

    def _candidates(self, begun: Beginnings) -> Candidates:
        """The groups to compare: first stages with the same next block, class and batch; whole pipelines."""
        whole = begun.end == self.ground.blocks
        place = (begun.batch * self.ground.blocks + begun.end) * len(self.ground.classes) + self.table.cls[begun.last]
        micros = begun.micros + self.ground.collection[begun.batch]
        counts = ~whole | self.ground.limits.latency_counts
        return Candidates(np.where(whole, 0, place), np.where(counts, micros, 0), begun.units, micros)

    @property
    def resource_names(self) -> tuple[tuple[str, int], ...]:
        """By resource: the pool, and the vGPU size if sizes are distinguished."""
        if self.ground.limits.whole_gpus:
            return tuple((c.pool.name, 1) for c in self.ground.classes)
        return tuple((self.ground.classes[kind.cls].pool.name, kind.divisor) for kind in self.ground.kinds)

    def renumbered(self, resources: Mapping[tuple[str, int], int]) -> Units:
        """The units of the whole pipelines, with the same resource numbers on every ground."""
        numbers = np.array([*(resources[name] for name in self.resource_names), NO_STAGE])
        own = np.minimum(self.finished.units.real, len(numbers) - 1).astype(np.int64)
        return np.sort(numbers[own] + 1j * self.finished.units.imag, axis=1)

    def templates(self) -> list[Template]:
        """The whole pipelines; equal stages are one object."""
        stages: dict[tuple[int, int], TemplateStage] = {}
        found = []
        for rows, batch in zip(self.finished.rows.tolist(), self.finished.batch.tolist(), strict=True):
            used = [row for row in rows if row != NO_ROW]
            pairs = zip(used, [*used[1:], NO_ROW], strict=True)
            chosen = tuple(stages[p] if p in stages else stages.setdefault(p, self._stage(*p)) for p in pairs)
            found.append(Template(self.ground.batches[batch], int(self.ground.collection[batch]), chosen))
        return found

    def _stage(self, row: int, after: int) -> TemplateStage:
        """A stage of the table with the transfer to the next stage."""
        table, ground = self.table, self.ground
        end, cls = int(table.end[row]), int(table.cls[row])
        moved = 0 if after == NO_ROW else int(ground.transfers[table.batch[row], cls, table.cls[after], end])
        return TemplateStage(
            first=int(table.first[row]),
            end=end,
            pool=ground.classes[cls].pool.name,
            divisor=int(table.divisor[row]),
            latency_micros=int(table.micros[row]),
            transfer_micros=moved,
            throughput=float(table.rate[row]),
        )


def _of_all_grounds(fields: Sequence[_Field], limits: TemplateLimits) -> list[int]:
    """The rows of all whole pipelines, field after field, that no pipeline of any field makes superfluous."""
    names = sorted({name for field in fields for name in field.resource_names})
    resources = {name: i for i, name in enumerate(names)}
    units = np.concatenate([_widened(f.renumbered(resources), limits.max_stages) for f in fields])
    micros = np.concatenate([f.finished.micros + f.ground.collection[f.finished.batch] for f in fields])
    counted = micros if limits.latency_counts else np.zeros_like(micros)
    rows: list[int] = undominated(Candidates(np.zeros_like(micros), counted, units, micros)).tolist()
    return rows


def _widened(units: Units, width: int) -> Units:
    """The same units, padded to `width` stages."""
    return np.pad(units, ((0, 0), (0, width - units.shape[1])), constant_values=NO_STAGE)
