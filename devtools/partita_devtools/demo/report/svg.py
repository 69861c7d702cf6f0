"""matplotlib figures as inline SVG. Their colours and font are the page's variables, so they follow its theme."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that stand for the page's variables. No figure uses them for themselves.
TEXT: Final = "#b00001"
MUTED: Final = "#b00002"
GRID: Final = "#b00003"
GOOD: Final = "#b00004"
BAD: Final = "#b00005"
WAITING: Final = "#b00006"
SHADE: Final = "#b00007"
SERIES: Final = ("#a00001", "#a00002", "#a00003", "#a00004", "#a00005", "#a00006")

VARIABLES: Final = {
    TEXT: "--text",
    MUTED: "--muted",
    GRID: "--grid",
    GOOD: "--good",
    BAD: "--bad",
    WAITING: "--waiting",
    SHADE: "--shade",
} | {colour: f"--series-{i}" for i, colour in enumerate(SERIES)}

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "partita",
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.color": TEXT,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def series_colour(number: int) -> str:
    """The colour of a series; the colours repeat."""
    return SERIES[number % len(SERIES)]


def new_figure(width: float = 5.8, height: float = 2.9) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; sizes in inches. Draw and save it within `styled()`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="x", visible=False)
    return figure, axes


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures have the report's style."""
    with mpl.rc_context(_STYLE):
        yield


def legend_above(figure: Figure, columns: int = 3) -> None:
    """A legend above the axes; none if nothing is drawn."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        figure.legend(loc="outside upper left", ncols=columns, borderaxespad=0.2, handlelength=1.4, columnspacing=1.4)


def inline_svg(figure: Figure, description: str) -> Markup:
    """The figure as an `<svg>` element; `description` is its text alternative."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", svg)  # matplotlib's names of groups, the same in every figure
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|(<svg[^>]*?) height="[^"]*" width="[^"]*"', r"\1\2", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
    svg = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return Markup(svg)
