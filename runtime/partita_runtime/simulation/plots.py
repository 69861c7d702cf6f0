"""Figures of simulation reports. This module loads matplotlib: import it only where figures are drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from partita_runtime.installation import extra_command

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as error:
    raise ImportError(f"figures need matplotlib; install it with: {extra_command('plots')}") from error

from partita_runtime.simulation.report import BatchExecution, LoadPoint, SimulationReport

_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
"""The palette of Okabe and Ito, which colour-blind people can distinguish."""
_GREY: Final = "#777777"
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
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(directory / f"{name}.png")
        figure.savefig(written[-1], dpi=150, metadata={"Software": None})
    return written


def goodput_against_load(loads: Sequence[LoadPoint]) -> Figure:
    """Requests answered in time against requests offered: ideally the diagonal, then flat from the peak on."""
    figure, axes = _figure()
    points = sorted(loads)
    offered = [point.offered for point in points]
    axes.plot(offered, offered, color=_GREY, linewidth=1, linestyle="--", label="offered")
    axes.plot(offered, [point.goodput for point in points], color=_COLOURS[0], marker="o", label="answered in time")
    axes.set(xlabel="offered, requests/s", ylabel="goodput, requests/s", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def utilization(report: SimulationReport) -> Figure:
    """Busy share of each worker, by GPUPool and stage, lowest number first."""
    rows = list(report.idle_by_worker.items())[:_MOST_ROWS]
    figure, axes = _figure(height=1.2 + 0.18 * len(rows))
    colours = _by_first_seen([_stage_of(name) for name, _ in rows])
    axes.barh(
        [name for name, _ in rows],
        [1 - idle for _, idle in rows],
        color=[colours[_stage_of(name)] for name, _ in rows],
        height=0.8,
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("busy share of the time")
    pools = ", ".join(f"{pool} {1 - idle:.0%}" for pool, idle in sorted(report.idle_by_pool.items()))
    axes.set_title(f"{pools}{_left_out(len(report.idle_by_worker))}", loc="left", fontsize=9)
    axes.tick_params(axis="y", labelsize=7)
    return figure


def timeline(executions: Sequence[BatchExecution]) -> Figure:
    """The batches of each worker over time (PPipe, Figure 12): about a dozen of each, from the middle of the run.

    A batch has the same colour on all its stages; the number is its size.
    """
    ordered = sorted(executions, key=lambda execution: execution.start_micros)
    workers = sorted({execution.worker for execution in ordered}, key=_natural)[:_MOST_ROWS]
    shown = ordered[len(ordered) // 2 :][: _TIMELINE_BATCHES * len(workers)]
    begin, end = shown[0].start_micros, max(execution.end_micros for execution in shown)
    rows = {worker: row for row, worker in enumerate(workers)}
    figure, axes = _figure(width=10, height=1.2 + 0.25 * len(rows))
    for execution in shown:
        row = rows.get(execution.worker)
        if row is None:
            continue
        start, took = (execution.start_micros - begin) / 1000, (execution.end_micros - execution.start_micros) / 1000
        colour = _COLOURS[execution.batch_id % len(_COLOURS)]
        axes.broken_barh([(start, took)], (row - 0.4, 0.8), facecolor=colour, edgecolor="white", linewidth=0.4)
        if took > (end - begin) / 1000 / 60:
            axes.text(start + took / 2, row, str(execution.batch_size), ha="center", va="center", fontsize=6)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(f"milliseconds from second {begin / 1e6:.3f}")
    axes.set_title("batches by vGPU" + _left_out(len({e.worker for e in ordered})), loc="left", fontsize=9)
    return figure


def batch_sizes(report: SimulationReport) -> Figure:
    """The number of batches by size for every pipeline."""
    figure, axes = _figure()
    sizes = sorted({size for by_size in report.batch_sizes.values() for size in by_size})
    width = 0.8 / max(1, len(report.batch_sizes))
    for number, (name, by_size) in enumerate(sorted(report.batch_sizes.items())):
        shift = (number - (len(report.batch_sizes) - 1) / 2) * width
        at = [size + shift for size in sizes]
        axes.bar(at, [by_size.get(size, 0) for size in sizes], width, color=_colour(number), label=name)
    axes.set(xlabel="batch size", ylabel="batches")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if report.batch_sizes:
        axes.legend(frameon=False, fontsize=7)
    return figure


def gpus_over_time(report: SimulationReport) -> Figure:
    """Load, accelerators in use and bad rate over time with the autoscaler (Symphony, Figure 15)."""
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    load, held, bad = figure.subplots(3, 1, sharex=True)
    times = [step.at_seconds for step in report.scaling]
    load.plot(times[1:], [step.offered_rate for step in report.scaling[1:]], color=_GREY)
    load.set_ylabel("requests/s")
    for number, pool in enumerate(sorted({pool for step in report.scaling for pool in step.gpus})):
        gpus = [step.gpus.get(pool, 0) for step in report.scaling]
        held.step(times, gpus, where="post", color=_colour(number), label=pool)
    held.set_ylabel("GPUs held")
    held.legend(frameon=False, fontsize=7)
    bad.plot(times[1:], [step.bad_rate for step in report.scaling[1:]], color=_COLOURS[5])
    bad.set(ylabel="bad rate", xlabel="seconds")
    bad.yaxis.set_major_formatter(PercentFormatter(1))
    for axes in (load, held, bad):
        axes.set_ylim(0, None)
        _plain(axes)
    return figure


def _figure(width: float = 7, height: float = 3.5) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _by_first_seen(names: Sequence[str]) -> Mapping[str, str]:
    return {name: _colour(number) for number, name in enumerate(dict.fromkeys(names))}


def _stage_of(worker: str) -> str:
    return worker.rpartition("/")[0]


def _natural(worker: str) -> tuple[str, int]:
    stage, _, number = worker.rpartition("/")
    return (stage, int(number)) if number.isdigit() else (worker, 0)


def _left_out(workers: int) -> str:
    return f" ({workers - _MOST_ROWS} more workers)" if workers > _MOST_ROWS else ""
