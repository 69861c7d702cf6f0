"""A session's DAG with its plan as a diagram: modules from left to right, their pipelines as rows of stages by pool.

`plan.svg.j2` draws it, with the colours of `theme.css`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec, PooledPipeline, Stage
from partita_api.session.module import Module

SERIES: Final = 6
"""Colours of pools in `theme.css`; they repeat."""
STAGE_WIDTH: Final = 150
STAGE_GAP: Final = 16
GAP: Final = 48
HEADER: Final = 50
PIPELINE: Final = 88
STAGE_HEIGHT: Final = 52
PADDING: Final = 14
ROW_GAP: Final = 22


@dataclass(frozen=True)
class StageBox:
    """One stage, as drawn."""

    x: float
    y: float
    width: float
    height: float
    pool: str
    colour: int
    """Number of the pool's colour."""
    title: str
    detail: str


@dataclass(frozen=True)
class PipelineRow:
    """One pooled pipeline, as drawn."""

    y: float
    title: str
    boxes: tuple[StageBox, ...]


@dataclass(frozen=True)
class ModuleCard:
    """One module, as drawn."""

    name: str
    subtitle: str
    x: float
    y: float
    width: float
    height: float
    rows: tuple[PipelineRow, ...]


@dataclass(frozen=True)
class Arrow:
    """One edge of the application's DAG, as drawn: a curve in SVG path syntax, and what it carries."""

    path: str
    end_x: float
    end_y: float
    label: str
    label_x: float
    label_y: float


@dataclass(frozen=True)
class PlanDiagram:
    """Everything to draw, in pixels."""

    width: float
    height: float
    cards: tuple[ModuleCard, ...]
    arrows: tuple[Arrow, ...]
    pools: tuple[tuple[str, int], ...]
    """Pool and number of its colour, for the legend."""


def plan_diagram(session: InferenceSessionSpec, plan: PipelinePlanSpec | None, pools: tuple[str, ...]) -> PlanDiagram:
    """The layout of the session's DAG with its plan, if it has one; a pool's place in `pools` is its colour."""
    session = with_size_classes(session)
    colours = {pool: number % SERIES for number, pool in enumerate(pools)}
    planned = {module.name: module for module in plan.modules} if plan is not None else {}
    kinds = {module.name: _kind(module) for module in session.modules}
    columns = _columns(session)
    heights = {name: _card_height(planned.get(name)) for column in columns for name in column}
    total = max(sum(heights[name] for name in column) + ROW_GAP * (len(column) - 1) for column in columns)
    width = _card_width(planned.values())
    cards: dict[str, ModuleCard] = {}
    for number, column in enumerate(columns):
        y = (total - sum(heights[name] for name in column) - ROW_GAP * (len(column) - 1)) / 2
        for name in column:
            place = _CardPlace(number * (width + GAP), y, width, heights[name])
            cards[name] = _card(name, kinds[name], planned.get(name), place, colours)
            y += heights[name] + ROW_GAP
    arrows = tuple(_arrow(cards[e.source], cards[e.target], e.mean, e.fan_out.max) for e in session.edges)
    used = plan.gpus() if plan is not None else {}
    return PlanDiagram(
        width=len(columns) * (width + GAP) - GAP,
        height=total,
        cards=tuple(cards.values()),
        arrows=arrows,
        pools=tuple((pool, colour) for pool, colour in colours.items() if pool in used),
    )


def pool_and_vgpus(stage: Stage) -> str:
    """The number of a stage's vGPUs, their share of an accelerator, and its pool: `2 × 1/4 a100`."""
    share = f"1/{stage.vgpu_divisor} " if stage.vgpu_divisor > 1 else ""
    return f"{stage.replicas} × {share}{stage.pool}"


def _columns(session: InferenceSessionSpec) -> list[list[str]]:
    """Modules by their depth in the DAG."""
    depth = {module.name: 0 for module in session.modules}
    for _ in session.modules:
        for edge in session.edges:
            depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    return [[name for name in depth if depth[name] == level] for level in range(max(depth.values()) + 1)]


@dataclass(frozen=True)
class _CardPlace:
    x: float
    y: float
    width: float
    height: float


def _card_width(plans: Iterable[ModulePlan]) -> float:
    """The width of the longest pipeline, at least of two stages."""
    longest = max((len(p.stages) for plan in plans for p in plan.pipelines), default=1)
    return 2 * PADDING + max(2, longest) * (STAGE_WIDTH + STAGE_GAP) - STAGE_GAP


def _card_height(module: ModulePlan | None) -> float:
    pipelines = len(module.pipelines) if module is not None else 0
    return HEADER + pipelines * PIPELINE + PADDING / 2


def _card(name: str, kind: str, module: ModulePlan | None, place: _CardPlace, colours: Mapping[str, int]) -> ModuleCard:
    subtitle, rows = kind, []
    if module is not None:
        rate = f"{float(module.rate):.0f}/s" if module.pipelines or module.padded_to else kind
        rate += f", padded to {module.padded_to}" if module.padded_to else ""
        subtitle = f"{rate} · budget {module.budget_micros / 1000:.0f} ms"
        for number, pipeline in enumerate(module.pipelines):
            top = place.y + HEADER + number * PIPELINE
            rows.append(PipelineRow(top, _pipeline_title(pipeline), _boxes(pipeline, place, top + 20, colours)))
    return ModuleCard(name, subtitle, place.x, place.y, place.width, place.height, tuple(rows))


def _kind(module: Module) -> str:
    if module.model is not None:
        return "model"
    return "endpoint" if module.endpoint is not None else "CPU function"


def _pipeline_title(pipeline: PooledPipeline) -> str:
    return f"{pipeline.name} · batches of {pipeline.batch_size} · {float(pipeline.throughput):.0f}/s"


def _boxes(pipeline: PooledPipeline, place: _CardPlace, y: float, colours: Mapping[str, int]) -> tuple[StageBox, ...]:
    """Stages side by side, equally wide, with a gap for the feature map between them."""
    count = len(pipeline.stages)
    width = (place.width - 2 * PADDING - STAGE_GAP * (count - 1)) / count
    return tuple(
        StageBox(
            x=place.x + PADDING + n * (width + STAGE_GAP),
            y=y,
            width=width,
            height=STAGE_HEIGHT,
            pool=stage.pool,
            colour=colours.get(stage.pool, 0),
            title=pool_and_vgpus(stage),
            detail=f"blocks {stage.blocks.first}–{stage.blocks.end - 1} · {stage.latency_micros / 1000:.1f} ms",
        )
        for n, stage in enumerate(pipeline.stages)
    )


def _arrow(source: ModuleCard, target: ModuleCard, mean: float, most: int) -> Arrow:
    x1, y1 = source.x + source.width, source.y + source.height / 2
    x2, y2 = target.x - 7, target.y + target.height / 2
    bend = (x2 - x1) / 2
    return Arrow(
        path=f"M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}",
        end_x=x2,
        end_y=y2,
        label="" if most == 1 else f"× {mean:g}",
        label_x=x2 - 4,
        label_y=y2 - 9 if y2 <= y1 else y2 + 19,
    )
