"""The page on annotations and labels has every name with Partita's prefix, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, source_files

from partita_api.meta import GROUP

PAGE = ROOT / "docs/reference/annotations.md"
NAME = re.compile(rf"(?:\{{GROUP\}}|{re.escape(GROUP)})/([a-z][a-z-]*)(?![\w:])")
"""A name, in code or as text. Not the version of the API, and not the name of an image."""


def files() -> Iterator[Path]:
    """The code, the chart and the examples."""
    yield from source_files()
    for folder in ("charts", "examples"):
        yield from (file for file in (ROOT / folder).rglob("*") if file.suffix in {".yaml", ".tpl", ".lua", ".py"})


def test_every_name_is_on_the_page() -> None:
    used = {name for file in files() for name in NAME.findall(file.read_text())}
    described = set(NAME.findall(PAGE.read_text()))

    assert "dev-node" in used, "a name that only the development tools use"
    assert used == described
