"""Writes the report's page and the result."""

import platform
from base64 import b64encode
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from partita_devtools.demo.report.charts import all_charts
from partita_devtools.demo.result import DemoResult
from partita_devtools.demo.summary import (
    accelerators,
    achievement,
    comparison,
    comparison_sentence,
    mean_utilization,
    stage_rows,
    unlike_package,
)
from partita_operator.console.drawing.plan_figure import plan_diagram

PAGE: Final = "index.html"
RESULT: Final = "result.json"
PICTURES: Final = "pictures"


def write_report(result: DemoResult, directory: Path) -> Path:
    """Write `index.html`, which needs no other file, and result and pictures into `directory`; the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for picture in result.pictures:
        file = directory / PICTURES / f"{picture.name}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(picture.png)
    (directory / RESULT).write_bytes(result.to_json())
    page = directory / PAGE
    page.write_text(render(result), encoding="utf-8")
    return page


def render(result: DemoResult) -> str:
    """The report as HTML; deterministic."""
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader(package, ".")
                for package in ("partita_devtools.demo.report", "partita_operator.console.drawing")
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"ms": _milliseconds, "percent": _percent, "money": _money, "base64": _base64}
    return environment.get_template("page.html.j2").render(
        result=result,
        session=result.session.metadata.name,
        spec=result.session.spec,
        plan=result.plan.spec,
        headline=result.phases[0].report,
        achievement=achievement(result.plan.spec),
        unlike_package=unlike_package(result.pictures),
        comparison=comparison(result.plan.spec),
        comparison_sentence=comparison_sentence(result.plan.spec),
        utilization=mean_utilization(result),
        accelerators=accelerators(result),
        prices={pool.metadata.name: pool.spec.price_per_hour for pool in result.pools},
        stages=stage_rows(result),
        diagram=plan_diagram(result.session.spec, result.plan.spec, tuple(pool.metadata.name for pool in result.pools)),
        charts=all_charts(result),
        started_at=datetime.fromisoformat(result.started_at).strftime("%-d %B %Y, %H:%M %Z"),
        versions=f"Partita {version('partita')}, Python {platform.python_version()}",
    )


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value * 100:.{digits}f} %"


def _base64(file: bytes) -> str:
    return b64encode(file).decode()


def _money(value: str | float) -> str:
    return f"{float(value):.2f}"
