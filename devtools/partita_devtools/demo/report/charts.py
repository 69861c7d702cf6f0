"""The report's figures."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from partita_api.conditions import ConditionType
from partita_devtools.demo.report.simulation_charts import batch_timeline, goodput_against_load
from partita_devtools.demo.report.svg import (
    BAD,
    GOOD,
    GRID,
    MUTED,
    SHADE,
    TEXT,
    WAITING,
    inline_svg,
    legend_above,
    new_figure,
    series_colour,
    styled,
)
from partita_devtools.demo.result import DemoResult, PhaseResult
from partita_devtools.demo.summary import batch_sizes, replicas, stage_name, utilization
from partita_devtools.sessions.snapshot import ConditionChange
from partita_runtime.figures import line_style

_OF_STATUS: Final = {"True": (GOOD, 0.35), "False": (WAITING, 0.45), "Unknown": (GRID, 1.0)}
"""Colour and opacity."""
_ROWS: Final = tuple(
    str(type)
    for type in (
        ConditionType.PROFILED,
        ConditionType.PLANNED,
        ConditionType.ROLLED_OUT,
        ConditionType.READY,
        ConditionType.SLO_MET,
    )
)


def traffic_over_time(phases: Sequence[PhaseResult]) -> Markup:
    """Requests offered and answered in time, by second."""
    times, offered, good = [], [], []
    for phase in phases:
        for second in phase.report.seconds:
            times.append(phase.start_s + second.second)
            offered.append(second.offered)
            good.append(second.good)
    with styled():
        figure, axes = new_figure()
        axes.fill_between(times, good, step="post", color=GOOD, alpha=0.25, linewidth=0)
        axes.step(times, offered, "--", where="post", color=MUTED, linewidth=1.2, label="offered")
        axes.step(times, good, where="post", color=GOOD, label="answered within the SLO")
        axes.set_ylim(0, max([1, *offered]) * 1.15)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("requests/s")
        _time_axis(axes, phases)
        legend_above(figure)
        return inline_svg(figure, "Requests per second offered, and answered within the SLO, over time")


def latency_distribution(phases: Sequence[PhaseResult], slo_ms: float) -> Markup:
    """Distribution of the answers' latency, for each phase."""
    with styled():
        figure, axes = new_figure()
        longest = slo_ms
        for number, phase in enumerate(phases):
            percentiles = phase.report.latency_percentiles_ms
            if percentiles:
                shares = np.linspace(0, 1, len(percentiles))
                axes.plot(
                    percentiles, shares, linestyle=line_style(number), color=series_colour(number), label=phase.name
                )
                longest = max(longest, percentiles[-1])
        axes.axvline(slo_ms, color=BAD, linestyle=(0, (4, 3)), linewidth=1.2)
        axes.annotate(
            f"SLO {slo_ms:.0f} ms", (slo_ms, 0.04), xytext=(-6, 0), textcoords="offset points", ha="right", color=BAD
        )
        axes.set_xlim(0, min(1.05 * longest, 2 * slo_ms))
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel("latency in milliseconds")
        legend_above(figure)
        return inline_svg(figure, "Distribution of the latency of answered requests, by phase, with the SLO")


def utilization_over_time(result: DemoResult) -> Markup:
    """Busy share of each pool's replicas."""
    with styled():
        figure, axes = new_figure()
        for number, (pool, series) in enumerate(utilization(result).items()):
            if series:
                times, busy = zip(*series, strict=True)
                colour = series_colour(number)
                axes.plot(times, busy, linestyle=line_style(number), color=colour, label=pool)
                axes.fill_between(times, busy, color=colour, alpha=0.12, linewidth=0)
        axes.set_ylim(0, 1.15)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        _time_axis(axes, result.phases)
        legend_above(figure)
        return inline_svg(figure, "Busy share of the replicas' time, by pool, over time")


def replicas_over_time(result: DemoResult) -> Markup:
    """Replicas of each stage that take batches."""
    series = {key: points for key, points in replicas(result).items() if points}
    with styled():
        figure, axes = new_figure()
        highest = max((count for points in series.values() for _, count in points), default=1)
        for number, (key, points) in enumerate(series.items()):
            times, counts = zip(*points, strict=True)
            # Lines of equal height lie beside, not on each other.
            shifted = np.array(counts) + 0.05 * (number - (len(series) - 1) / 2)
            style, colour = line_style(number), series_colour(number)
            axes.step(times, shifted, linestyle=style, where="post", color=colour, label=stage_name(key))
        axes.set_ylim(0, highest + 1)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("replicas")
        _time_axis(axes, result.phases)
        legend_above(figure)
        return inline_svg(figure, "Replicas that take batches, by stage, over time")


def batch_size_histogram(result: DemoResult) -> Markup:
    """Batches that were dispatched, by size."""
    counts = batch_sizes(result)
    with styled():
        figure, axes = new_figure()
        sizes = range(1, max(counts, default=1) + 1)
        total = sum(counts.values()) or 1
        shares = [counts.get(size, 0) / total for size in sizes]
        bars = axes.bar([str(size) for size in sizes], shares, color=series_colour(0))
        axes.bar_label(bars, [f"{counts[size]:,}" if size in counts else "" for size in sizes], color=MUTED, padding=2)
        axes.margins(y=0.15)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("samples in a batch")
        axes.set_ylabel("share of all batches")
        return inline_svg(figure, "Batches by size")


def condition_timeline(result: DemoResult) -> Markup:
    """The status of each condition over time."""
    last_phase = result.phases[-1]
    end = result.load_after_s + last_phase.start_s + last_phase.report.duration_s
    name = f"InferenceSession {result.session.metadata.name}"
    with styled():
        figure, axes = new_figure(width=11.8, height=2.2)
        for row, type in enumerate(_ROWS):
            for begin, until, change in _spans(result.timeline, name, type, end):
                colour, alpha = _OF_STATUS[change.status]
                axes.barh(
                    row, until - begin, left=begin, height=0.62, facecolor=colour, alpha=alpha, linewidth=0,
                    hatch="///" if change.status == "False" else "", edgecolor=MUTED,
                )  # fmt: skip
                if until - begin > 0.07 * end:
                    axes.text(begin + 0.004 * end, row, change.reason, va="center", fontsize="small", color=TEXT)
        for phase in result.phases:
            begin = result.load_after_s + phase.start_s
            axes.axvline(begin, color=MUTED, linestyle=(0, (2, 3)), linewidth=1)
            axes.annotate(
                phase.name, (begin, 1), xycoords=("data", "axes fraction"), xytext=(3, 3), textcoords="offset points",
                fontsize="x-small", color=MUTED,
            )  # fmt: skip
        axes.set_yticks(range(len(_ROWS)), _ROWS)
        axes.tick_params(axis="y", labelcolor=TEXT)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlim(0, end)
        axes.set_xlabel("seconds since the manifests were applied")
        return inline_svg(figure, "When each condition of the session was true")


def all_charts(result: DemoResult) -> Mapping[str, Markup]:
    """Every figure, by its name in the page."""
    charts = {
        "traffic": traffic_over_time(result.phases),
        "latency": latency_distribution(result.phases, result.session.spec.slo.latency_ms),
        "utilization": utilization_over_time(result),
        "replicas": replicas_over_time(result),
        "batches": batch_size_histogram(result),
        "conditions": condition_timeline(result),
    }
    if result.simulated is not None:
        charts["goodput"] = goodput_against_load(result.simulated, result.phases)
        charts["executions"] = batch_timeline(result.simulated)
    return charts


def _time_axis(axes: Axes, phases: Sequence[PhaseResult]) -> None:
    """A time axis in seconds under load, with the phases' names; every other phase is shaded."""
    end = max((phase.start_s + phase.report.duration_s for phase in phases), default=1.0)
    axes.set_xlim(0, end)
    axes.set_xlabel("seconds under load")
    for number, phase in enumerate(phases):
        begin, until = phase.start_s, phase.start_s + phase.report.duration_s
        if number % 2:
            axes.axvspan(begin, until, color=SHADE, linewidth=0, zorder=0)
        axes.annotate(
            phase.name,
            ((begin + until) / 2, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize="small",
            color=MUTED,
        )


def _spans(
    timeline: Sequence[ConditionChange], name: str, type: str, end: float
) -> Sequence[tuple[float, float, ConditionChange]]:
    """Periods of one status each."""
    own = [change for change in timeline if change.object == name and change.type == type]
    turns = [c for i, c in enumerate(own) if i == 0 or own[i - 1].status != c.status]
    ends = [*(change.at_s for change in turns[1:]), end]
    return [(change.at_s, until, change) for change, until in zip(turns, ends, strict=False)]
