"""A demonstration's result for the terminal."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from partita_devtools.demo.result import DemoResult, ReadPicture
from partita_devtools.demo.summary import (
    accelerators,
    achievement,
    comparison_sentence,
    mean_utilization,
    reads_like_package,
    reasons_for_misses,
    stage_rows,
    unlike_package,
)

MOST_LINES: Final = 2
"""Lines of text of a picture that are printed; the report has all."""


def print_result(result: DemoResult, console: Console) -> None:
    """Print the text of pictures, the plan, its cost, and its results under load."""
    for line in _pictures(result.pictures):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(Group(_plan_table(result), Text(_cost(result)), Text(), _phase_table(result), _verdict(result)))
    for reason in reasons_for_misses(result):
        # Not in the frame, and not wrapped: it proposes a command to paste.
        console.print(reason, soft_wrap=True, highlight=False, markup=False)


def slo_met(result: DemoResult) -> bool:
    """Whether the planned load was served within the SLO, and answers equal those of models and package."""
    agrees = result.verification is None or result.verification.agrees
    return (
        agrees
        and reads_like_package(result.pictures)
        and result.phases[0].report.attainment >= result.session.spec.slo.attainment.fraction
    )


def _pictures(pictures: Sequence[ReadPicture]) -> Iterator[str]:
    """The first lines of text of every picture: in the picture, as it was served, and as the package reads it."""
    for picture in pictures:
        yield f"picture {picture.name}, {len(picture.written)} lines of text"
        texts = {"in it": picture.written, "served": picture.served, picture.package: picture.own}
        for number in range(min(MOST_LINES, max(map(len, texts.values())))):
            for reader, lines in texts.items():
                yield f"  {reader:8}  {lines[number] if number < len(lines) else '(no line)'}"
    if pictures:
        yield f"from the text that {pictures[0].package} reads, {unlike_package(pictures)}\n"


def _plan_table(result: DemoResult) -> Table:
    table = _table(f"Plan {result.plan.metadata.name}", ("stage", "pool", "blocks"))
    for name in ("batch", "count", "planned", "measured", "idle"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in stage_rows(result):
        worked = row.last is not None and row.last.actual_micros > 0
        table.add_row(
            f"{row.module} {row.pipeline}.{row.number}",
            row.stage.pool,
            f"{row.stage.blocks.first}-{row.stage.blocks.end - 1}",
            str(row.batch_size),
            f"{row.stage.replicas}{f' x 1/{row.stage.vgpu_divisor}' if row.stage.vgpu_divisor > 1 else ''}",
            _milliseconds(row.stage.latency_micros / 1000),
            _milliseconds(row.last.actual_micros / 1000 if row.last is not None and worked else None),
            f"{row.last.idle_fraction:.0%}" if row.last is not None and worked else "-",
        )
    return table


def _cost(result: DemoResult) -> str:
    plan = result.plan.spec
    used = ", ".join(f"{used} of {there} {pool}" for pool, (used, there) in accelerators(result).items())
    return f"{achievement(plan)}, {comparison_sentence(plan)}\naccelerators: {used}"


def _phase_table(result: DemoResult) -> Table:
    table = _table("Load", ("phase",))
    for name in ("sent", "goodput", "in time", "p50", "p99", "busy"):
        table.add_column(name, justify="right")
    for number, phase in enumerate(result.phases):
        busy = mean_utilization(result, number)
        table.add_row(
            phase.name,
            f"{phase.rate:g}/s",
            f"{phase.report.goodput:.1f}/s",
            f"{phase.report.attainment:.2%}",
            _milliseconds(phase.report.p50_ms),
            _milliseconds(phase.report.p99_ms),
            "-" if busy is None else f"{busy:.0%}",
        )
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _verdict(result: DemoResult) -> RenderableType:
    slo, report = result.session.spec.slo, result.phases[0].report
    met = report.attainment >= slo.attainment.fraction
    lines = [
        f"{report.attainment:.2%} of {report.requests} requests within {slo.latency_ms} ms: "
        f"the objective of {slo.attainment} is {'met' if met else 'missed'}"
    ]
    if result.verification is not None:
        same = "are those" if result.verification.agrees else "are NOT those"
        lines.append(
            f"the answers of {result.verification.requests} requests {same} of the whole models "
            f"(off by {result.verification.largest_error:.2%} at most, {result.verification.tolerance:.2%} allowed)"
        )
        lines += result.verification.differences
        lines += [f"rounding at cuts explains: {sentence}" for sentence in result.verification.explained]
    return Panel("\n".join(lines), border_style="green" if slo_met(result) else "red", expand=False)


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"
