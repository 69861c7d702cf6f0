"""The pages of the site that docs/ does not have: the reference generated from the code, and files of the root."""

from pathlib import Path
from typing import Final

from partita_api.crd_schema import KINDS
from partita_devtools.docs.api_fields import kind_page
from partita_devtools.docs.chart_values import values_page
from partita_devtools.docs.command_line import command_page
from partita_devtools.docs.links import COPIED
from partita_devtools.docs.python_api import package_page
from partita_operator.cli.main import main

PACKAGES: Final = (
    "partita",
    "partita_api",
    "partita_planner",
    "partita_runtime.scheduling",
    "partita_runtime.simulation",
)
"""The packages with a page of their public names."""


def generated_pages(root: Path) -> dict[str, str]:
    """The Markdown of the pages generated from the code, by their path on the site."""
    values = root / "charts/partita/values.yaml"
    return {
        **{f"reference/api/{kind.name.lower()}.md": kind_page(kind) for kind in KINDS},
        "reference/command-line.md": command_page(main, "partita"),
        "reference/chart-values.md": values_page(values.read_text(encoding="utf-8")),
        **{f"reference/python/{package}.md": package_page(package) for package in PACKAGES},
    }


def copied_pages(root: Path) -> dict[str, str]:
    """The pages of the repository's root, by their path on the site."""
    sources = {source: page for source, page in COPIED.items() if source.endswith(".md") and (root / source).exists()}
    pages = {page: (root / source).read_text(encoding="utf-8") for source, page in sources.items()}
    licence = (root / "LICENSE").read_text(encoding="utf-8").strip("\n")
    return {**pages, "contribute/license.md": f"# License\n\n```text\n{licence}\n```\n"}
