"""The report's figures of the simulated plan."""

from collections.abc import Sequence

from markupsafe import Markup

from partita_devtools.demo.report.svg import (
    MUTED,
    TEXT,
    inline_svg,
    legend_above,
    new_figure,
    series_colour,
    styled,
)
from partita_devtools.demo.result import PhaseResult
from partita_devtools.demo.simulation import SimulatedPlan
from partita_devtools.demo.summary import stage_name
from partita_runtime.figures import hatch
from partita_runtime.simulation.emulation.executions import BatchExecution, worker_order


def goodput_against_load(simulated: SimulatedPlan, phases: Sequence[PhaseResult]) -> Markup:
    """Requests answered in time against requests offered: simulated with the planned replicas, and measured."""
    offered = [point.offered for point in simulated.loads]
    with styled():
        figure, axes = new_figure()
        axes.plot([0, *offered], [0, *offered], "--", color=MUTED, linewidth=1.2, label="offered")
        goodputs = [point.goodput for point in simulated.loads]
        axes.plot(offered, goodputs, color=series_colour(0), label="simulated, planned replicas")
        axes.plot(
            [phase.report.offered_rate for phase in phases],
            [phase.report.goodput for phase in phases],
            "D",
            color=series_colour(1),
            label="measured, by phase",
        )
        axes.set(xlim=(0, None), ylim=(0, None), xlabel="offered, requests/s", ylabel="in time, requests/s")
        axes.grid(axis="x", visible=True)
        legend_above(figure)
        return inline_svg(figure, "Requests per second answered in time against those offered")


def batch_timeline(simulated: SimulatedPlan) -> Markup:
    """The batches of each replica over time at the declared rate; one colour and pattern for each stage."""
    executions = simulated.executions
    replicas = sorted({execution.worker for execution in executions}, key=worker_order)
    stages = {stage: number for number, stage in enumerate(dict.fromkeys(map(_stage, executions)))}
    begin = min((execution.start_micros for execution in executions), default=0)
    with styled():
        figure, axes = new_figure(width=11.8, height=1.1 + 0.24 * len(replicas))
        shown: set[str] = set()
        for execution in executions:
            row, stage = replicas.index(execution.worker), _stage(execution)
            start, took = (execution.start_micros - begin) / 1e3, (execution.end_micros - execution.start_micros) / 1e3
            axes.broken_barh(
                [(start, took)],
                (row - 0.38, 0.76),
                facecolor=series_colour(stages[stage]),
                alpha=0.6,
                hatch=hatch(stages[stage]),
                edgecolor=TEXT,
                linewidth=0.4,
                label="" if stage in shown else stage_name(stage),
            )
            shown.add(stage)
        axes.set_yticks(range(len(replicas)), replicas)
        axes.tick_params(axis="y", labelsize="x-small")
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("milliseconds of virtual time")
        legend_above(figure, columns=4)
        return inline_svg(figure, "When each replica executes a batch")


def _stage(execution: BatchExecution) -> str:
    return f"{execution.module}/{execution.pipeline}/{execution.stage}"
