"""Figures with matplotlib: their palette, their size and their files. Import it only where figures are drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from partita_runtime.installation import extra_command

try:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as error:
    raise ImportError(f"figures need matplotlib; install it with: {extra_command('plots')}") from error

__all__ = [
    "COLOURS",
    "GREY",
    "Axes",
    "Figure",
    "by_first_seen",
    "colour",
    "hatch",
    "in_percent",
    "in_whole_numbers",
    "line_style",
    "new_figure",
    "without_frame",
    "write_figures",
]

LineStyle = str | tuple[int, tuple[int, ...]]
"""A line style of matplotlib: its name, or an offset with the lengths of dashes and gaps."""

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
"""The palette of Okabe and Ito, which colour-blind people can distinguish."""
HATCHES: Final = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo", "|||")
"""A pattern for each colour, which a printer without colours shows."""
LINES: Final[tuple[LineStyle, ...]] = ("-", "--", ":", "-.", (0, (9, 2)), (0, (2, 1, 2, 4)))
"""A line style for each colour, for the same reason."""
GREY: Final = "#777777"


def colour(number: int) -> str:
    """The colour of a number; the palette repeats."""
    return COLOURS[number % len(COLOURS)]


def hatch(number: int) -> str:
    """The pattern of a number; the patterns repeat as the colours do."""
    return HATCHES[number % len(HATCHES)]


def line_style(number: int) -> LineStyle:
    """The line style of a number; the styles repeat."""
    return LINES[number % len(LINES)]


def by_first_seen(names: Sequence[str]) -> Mapping[str, int]:
    """A number for each name, in the order in which the names occur first."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def new_figure(width: float = 7, height: float = 3.5) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    without_frame(axes)
    return figure, axes


def without_frame(axes: Axes) -> None:
    """Remove the lines above and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def in_percent(axis: Axis) -> None:
    """Label shares of 1 as percentages."""
    axis.set_major_formatter(PercentFormatter(1))


def in_whole_numbers(axis: Axis) -> None:
    """Place ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True))


def write_figures(directory: Path, figures: Mapping[str, Figure]) -> list[Path]:
    """Write each figure as NAME.png, and return the paths; creates the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(directory / f"{name}.png")
        figure.savefig(written[-1], dpi=150, metadata={"Software": None})
    return written
