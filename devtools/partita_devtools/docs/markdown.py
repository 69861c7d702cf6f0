"""Tables, code and headings in the Markdown that MkDocs reads."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

_CODE: Final = re.compile(r"(`[^`]*`)")
_PAGE: Final = re.compile(r"docs/(?P<path>(?:[\w-]+/)*(?P<name>[\w-]+)\.md)")


def cell(text: str) -> str:
    """Text as one cell of a table: on one line. Characters of Markdown and HTML are escaped outside of code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if index % 2 else _escaped(part) for index, part in enumerate(parts))


def prose(text: str) -> str:
    """Text as one cell of a page in `reference/`. The pages of docs/ that it names become links."""
    return _PAGE.sub(r"[\g<name>](../\g<path>)", cell(text))


def code(text: str) -> str:
    """Text as inline code; empty text stays empty."""
    return f"`{text}`" if text else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Its cells are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def heading(level: int, title: str, anchor: str) -> str:
    """A heading with a fixed anchor."""
    return f"{'#' * level} {title} {{#{anchor}}}"


def anchor(path: str) -> str:
    """The anchor of a dotted path."""
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")


def page(*parts: str) -> str:
    """Blocks separated by empty lines; empty blocks are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"([|*\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
