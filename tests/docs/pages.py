"""The code blocks of the pages for people."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Final

from tests.architecture.sources import ROOT, documents

FENCE: Final = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block. `not_run` says what a test would need to run it; the comment above the block has it."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> str:
        """What a reader pastes into a shell: of a session on a console, the lines after its prompts."""
        if self.language != "console":
            return self.text
        return "\n".join(line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ "))

    @property
    def output(self) -> str:
        """What a session on a console shows after the commands."""
        return "\n".join(line for line in self.text.splitlines() if not line.startswith("$ "))


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """The blocks of a page, named by its path from the repository's root."""
    text = (ROOT / page).read_text()
    return tuple(
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            dedent(found["text"]),
            found["reason"],
        )
        for found in FENCE.finditer(text)
    )


def all_blocks(*languages: str) -> Iterator[Block]:
    """The blocks in these languages, of all pages."""
    for page in documents():
        yield from (block for block in blocks(str(page.relative_to(ROOT))) if block.language in languages)


def pasted(page: str) -> list[str]:
    """The commands of a page that its test pastes, block by block."""
    return [block.commands for block in blocks(page) if block.language in SHELL and block.not_run is None]


def pasted_with_nodes(page: str) -> list[str]:
    """The same on a cluster with nodes: also the blocks that need them."""
    ways = (None, NEEDS_NODES)
    return [block.commands for block in blocks(page) if block.language in SHELL and block.not_run in ways]


def programs(page: str) -> list[str]:
    """The Python programs of a page that its test runs."""
    return [block.text for block in blocks(page) if block.language == "python" and block.not_run is None]


SHELL: Final = ("sh", "console")
NEEDS_NODES: Final = "it needs nodes, see tests/cluster"


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page tells its reader to save."""
    for name, content in SAVED.findall((ROOT / page).read_text()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if path.suffix == ".py":
            (path.parent / "__init__.py").touch()


SAVED: Final = re.compile(
    r"(?:save this as|create)\s+`([^`]+)`(?: and an empty `[^`]+`)?:\n\n```\w+\n(.*?)```", re.DOTALL | re.IGNORECASE
)
