"""Figures of simulation reports. This module loads matplotlib: import it only where figures are drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from partita_runtime.figures import (
    COLOURS,
    GREY,
    Figure,
    by_first_seen,
    colour,
    hatch,
    in_percent,
    in_whole_numbers,
    line_style,
    new_figure,
    without_frame,
    write_figures,
)
from partita_runtime.simulation.emulation.executions import BatchExecution, consecutive, worker_order
from partita_runtime.simulation.report import LoadPoint, SimulationReport

_TIMELINE_BATCHES: Final = 12
"""About how many batches of each worker the timeline shows."""
_MOST_ROWS: Final = 60
"""A figure with a row per worker shows at most this many workers."""


def write_plots(directory: Path, report: SimulationReport, loads: Sequence[LoadPoint] = ()) -> list[Path]:
    """Write all figures that the report allows as PNG files, and return their paths; creates the directory.

    `loads` are results at several loads, for the figure of goodput against offered load.
    """
    figures: dict[str, Figure] = {"utilization": utilization(report), "batch-sizes": batch_sizes(report)}
    if loads:
        figures["goodput"] = goodput_against_load(loads)
    if report.timeline:
        figures["timeline"] = timeline(report.timeline)
    if report.scaling:
        figures["gpus"] = gpus_over_time(report)
    return write_figures(directory, figures)


def goodput_against_load(loads: Sequence[LoadPoint]) -> Figure:
    """Requests answered in time against requests offered: ideally the diagonal, then flat from the peak on."""
    figure, axes = new_figure()
    points = sorted(loads)
    offered = [point.offered for point in points]
    axes.plot(offered, offered, color=GREY, linewidth=1, linestyle="--", label="offered")
    axes.plot(offered, [point.goodput for point in points], color=COLOURS[0], marker="o", label="answered in time")
    axes.set(xlabel="offered, requests/s", ylabel="goodput, requests/s", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def utilization(report: SimulationReport) -> Figure:
    """Busy share of each worker, by GPUPool and stage, lowest number first."""
    rows = list(report.idle_by_worker.items())[:_MOST_ROWS]
    figure, axes = new_figure(height=1.2 + 0.18 * len(rows))
    stages = by_first_seen([_stage_of(name) for name, _ in rows])
    axes.barh(
        [name for name, _ in rows],
        [1 - idle for _, idle in rows],
        color=[colour(stages[_stage_of(name)]) for name, _ in rows],
        hatch=[hatch(stages[_stage_of(name)]) for name, _ in rows],
        edgecolor="white",
        height=0.8,
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    in_percent(axes.xaxis)
    axes.set_xlabel("busy share of the time")
    pools = ", ".join(f"{pool} {1 - idle:.0%}" for pool, idle in sorted(report.idle_by_pool.items()))
    axes.set_title(f"{pools}{_left_out(len(report.idle_by_worker))}", loc="left", fontsize=9)
    axes.tick_params(axis="y", labelsize=7)
    return figure


def timeline(executions: Sequence[BatchExecution]) -> Figure:
    """The batches of each worker over time (PPipe, Figure 12): about twelve of each, from the middle of the run.

    A batch has the same colour on all its stages; the number is its size.
    """
    names = {execution.worker for execution in executions}
    workers = sorted(names, key=worker_order)[:_MOST_ROWS]
    shown = consecutive(executions, _TIMELINE_BATCHES * len(workers))
    begin, end = shown[0].start_micros, max(execution.end_micros for execution in shown)
    rows = {worker: row for row, worker in enumerate(workers)}
    figure, axes = new_figure(width=10, height=1.2 + 0.25 * len(rows))
    for execution in shown:
        row = rows.get(execution.worker)
        if row is None:
            continue
        start, took = (execution.start_micros - begin) / 1000, (execution.end_micros - execution.start_micros) / 1000
        fill = colour(execution.batch_id)
        axes.broken_barh([(start, took)], (row - 0.4, 0.8), facecolor=fill, edgecolor="white", linewidth=0.4)
        if took > (end - begin) / 1000 / 60:
            axes.text(start + took / 2, row, str(execution.batch_size), ha="center", va="center", fontsize=6)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(f"milliseconds from second {begin / 1e6:.3f}")
    axes.set_title("batches by vGPU" + _left_out(len(names)), loc="left", fontsize=9)
    return figure


def batch_sizes(report: SimulationReport) -> Figure:
    """The number of batches by size for every pipeline."""
    figure, axes = new_figure()
    sizes = sorted({size for by_size in report.batch_sizes.values() for size in by_size})
    width = 0.8 / max(1, len(report.batch_sizes))
    for number, (name, by_size) in enumerate(sorted(report.batch_sizes.items())):
        shift = (number - (len(report.batch_sizes) - 1) / 2) * width
        at = [size + shift for size in sizes]
        counts = [by_size.get(size, 0) for size in sizes]
        axes.bar(at, counts, width, color=colour(number), hatch=hatch(number), edgecolor="white", label=name)
    axes.set(xlabel="batch size", ylabel="batches")
    in_whole_numbers(axes.xaxis)
    if report.batch_sizes:
        axes.legend(frameon=False, fontsize=7)
    return figure


def gpus_over_time(report: SimulationReport) -> Figure:
    """Load, accelerators in use and bad rate over time with the autoscaler (Symphony, Figure 15)."""
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    load, held, bad = figure.subplots(3, 1, sharex=True)
    times = [step.at_seconds for step in report.scaling]
    load.plot(times[1:], [step.offered_rate for step in report.scaling[1:]], color=GREY)
    load.set_ylabel("requests/s")
    for number, pool in enumerate(sorted({pool for step in report.scaling for pool in step.gpus})):
        gpus = [step.gpus.get(pool, 0) for step in report.scaling]
        held.step(times, gpus, linestyle=line_style(number), where="post", color=colour(number), label=pool)
    held.set_ylabel("GPUs held")
    held.legend(frameon=False, fontsize=7)
    bad.plot(times[1:], [step.bad_rate for step in report.scaling[1:]], color=COLOURS[5])
    bad.set(ylabel="bad rate", xlabel="seconds")
    in_percent(bad.yaxis)
    for axes in (load, held, bad):
        axes.set_ylim(0, None)
        without_frame(axes)
    return figure


def _stage_of(worker: str) -> str:
    return worker.rpartition("/")[0]


def _left_out(workers: int) -> str:
    return f" ({workers - _MOST_ROWS} more workers)" if workers > _MOST_ROWS else ""
