"""Figures of a plan. This module loads matplotlib: import it only where figures are drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from partita_api.inferencesession import InferenceSession
from partita_api.module_graph import longest_paths
from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec, PooledPipeline
from partita_operator.console.drawing.plan_figure import pool_and_vgpus
from partita_planner.session.latency import latency_graph
from partita_runtime.figures import (
    GREY,
    Axes,
    Figure,
    by_first_seen,
    colour,
    hatch,
    in_whole_numbers,
    new_figure,
    write_figures,
)

_ROW: Final = 0.42
"""Inches of a row."""
_BAR: Final = 0.62
"""Share of a row that its bar fills."""
_TRANSFER: Final = "#bbbbbb"
_FUNCTION: Final = "#eeeeee"
_LABEL: Final = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
"""The ground of a label on a bar."""


def write_plan_plots(
    directory: Path, session: InferenceSession, plan: PipelinePlanSpec, capacity: Mapping[str, int]
) -> list[Path]:
    """Write the figures of a plan as PNG files named after its session, and return the paths; creates the directory.

    `capacity` is the number of accelerators of each pool, those of the plan among them.
    """
    name = session.metadata.name
    return write_figures(
        directory,
        {
            f"{name}-pipelines": pipelines(plan),
            f"{name}-latency": latency_budgets(session, plan),
            f"{name}-pools": pools(plan, capacity),
        },
    )


def pipelines(plan: PipelinePlanSpec) -> Figure:
    """The blocks of each module along the pooled pipelines that run them (PPipe, Figure 5): a bar for each stage.

    Pools differ in colour and pattern. The label is the number of vGPUs and the execution time of a batch.
    """
    rows = _rows(plan)
    numbers = _pool_numbers(plan)
    figure, axes = new_figure(width=10, height=1.3 + _ROW * len(rows))
    for row, (_, pipeline) in enumerate(rows):
        for stage in pipeline.stages:
            begin, width = stage.blocks.first, stage.blocks.end - stage.blocks.first
            _bar(axes, row, begin, width, numbers[stage.pool])
            label = f"{pool_and_vgpus(stage)}, {stage.latency_micros / 1000:.1f} ms"
            axes.text(begin + width / 2, row, label, ha="center", va="center", fontsize=7, bbox=_LABEL)
    _name_rows(axes, [f"{m.name}/{p.name}\nbatch {p.batch_size}, {float(p.throughput):.0f}/s" for m, p in rows])
    axes.set(xlabel="blocks of the model", xlim=(0, max((p.stages[-1].blocks.end for _, p in rows), default=1)))
    in_whole_numbers(axes.xaxis)
    _pool_legend(figure, axes, numbers)
    return figure


def latency_budgets(session: InferenceSession, plan: PipelinePlanSpec) -> Figure:
    """How a request spends its SLO: each module's latency budget, from the end of the modules before it.

    A pipeline's stages and transfers fill the end of the budget; what is left before them is for the collection of
    the batch. Lines mark the SLO, and the SLO less `planner.marginPercent`.
    """
    graph = latency_graph(session.spec)
    budgets = {module.name: module.budget_micros for module in plan.modules}
    times = {**graph.fixed, **{name: budgets[name] for name in graph.models}}
    ends = longest_paths(graph.order, graph.edges, times)
    numbers = _pool_numbers(plan)
    labels: list[str] = []
    planned = {module.name: module for module in plan.modules}
    figure, axes = new_figure(width=10, height=1.3 + _ROW * (len(_rows(plan)) + len(graph.fixed)))
    for name in graph.order:
        if planned[name].padded_to is not None:
            continue
        end = int(ends[name].time) / 1000
        budget = int(times[name]) / 1000
        for pipeline in planned[name].pipelines or (None,):
            row = len(labels)
            labels.append(f"{name if pipeline is None else f'{name}/{pipeline.name}'}\n{budget:.0f} ms")
            if pipeline is not None:
                _fill_budget(axes, row, end, pipeline, numbers)
            fill = _FUNCTION if pipeline is None else "none"
            place = row - _BAR / 2, _BAR
            axes.broken_barh([(end - budget, budget)], place, facecolor=fill, edgecolor="black", zorder=3)
    axes.axvline(graph.slo_micros / 1000, color="black", linestyle="--", linewidth=1, label="SLO less the margin")
    axes.axvline(session.spec.slo.latency_ms, color="black", linewidth=1, label="SLO")
    _name_rows(axes, labels)
    axes.set(xlabel="milliseconds since the arrival of the request", xlim=(0, None))
    axes.broken_barh([], (0, 0), facecolor="none", edgecolor="black", label="collection of the batch")
    axes.broken_barh([], (0, 0), facecolor=_TRANSFER, label="transfer")
    if graph.fixed:
        axes.broken_barh([], (0, 0), facecolor=_FUNCTION, edgecolor="black", label="CPU function")
    _pool_legend(figure, axes, numbers)
    return figure


def pools(plan: PipelinePlanSpec, capacity: Mapping[str, int]) -> Figure:
    """The accelerators of each pool that the plan takes, and those that it leaves."""
    taken = plan.gpus()
    figure, axes = new_figure(width=7, height=1.3 + _ROW * len(capacity))
    numbers = _pool_numbers(plan)
    for row, name in enumerate(capacity):
        axes.broken_barh([(0, capacity[name])], (row - _BAR / 2, _BAR), facecolor="none", edgecolor=GREY)
        if name in taken:
            _bar(axes, row, 0, taken[name], numbers[name])
    _name_rows(axes, [f"{name}\n{taken.get(name, 0)} of {gpus}" for name, gpus in capacity.items()])
    axes.set(xlabel="accelerators", xlim=(0, None))
    in_whole_numbers(axes.xaxis)
    return figure


def _rows(plan: PipelinePlanSpec) -> list[tuple[ModulePlan, PooledPipeline]]:
    return [(module, pipeline) for module in plan.modules for pipeline in module.pipelines]


def _pool_numbers(plan: PipelinePlanSpec) -> Mapping[str, int]:
    return by_first_seen([stage.pool for _, _, _, stage in plan.stages()])


def _bar(axes: Axes, row: float, begin: float, width: float, number: int) -> None:
    axes.broken_barh(
        [(begin, width)],
        (row - _BAR / 2, _BAR),
        facecolor=colour(number),
        hatch=hatch(number),
        edgecolor="white",
        linewidth=1.5,
    )


def _fill_budget(axes: Axes, row: float, end: float, pipeline: PooledPipeline, numbers: Mapping[str, int]) -> None:
    """The stages and transfers of a pipeline, in milliseconds, so that the last one ends at `end`."""
    at = end - sum(stage.latency_micros + stage.transfer_micros for stage in pipeline.stages) / 1000
    for stage in pipeline.stages:
        took, sent = stage.latency_micros / 1000, stage.transfer_micros / 1000
        _bar(axes, row, at, took, numbers[stage.pool])
        axes.broken_barh([(at + took, sent)], (row - _BAR / 2, _BAR), facecolor=_TRANSFER)
        at += took + sent


def _name_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _pool_legend(figure: Figure, axes: Axes, numbers: Mapping[str, int]) -> None:
    for pool, number in numbers.items():
        axes.broken_barh([], (0, 0), facecolor=colour(number), hatch=hatch(number), edgecolor="white", label=pool)
    figure.legend(loc="outside upper left", ncols=8, frameon=False, fontsize=8)
