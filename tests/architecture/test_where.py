"""`docs/internals/where.md` says where things are: each file is there and defines the names beside it."""

import re
from typing import NamedTuple

import pytest
from tests.architecture.sources import ROOT, definitions

PAGE = ROOT / "docs/internals/where.md"
ROW = re.compile(r"^\| (?P<question>[^|]+) \| `(?P<file>[^`|]+)` \| (?P<names>[^|]*)\|$", re.MULTILINE)


class Answer(NamedTuple):
    """One row of the page."""

    question: str
    file: str
    names: list[str]


def answers() -> list[Answer]:
    return [
        Answer(row["question"], row["file"], re.findall(r"`([^`]+)`", row["names"]))
        for row in ROW.finditer(PAGE.read_text())
    ]


@pytest.mark.parametrize("answer", answers(), ids=lambda answer: answer.question)
def test_the_named_file_defines_the_named_things(answer: Answer) -> None:
    file = ROOT / answer.file

    assert file.is_file(), answer.file
    assert answer.names, "a row names what the file defines"
    assert set(answer.names) <= definitions(file)


def test_every_row_of_the_page_is_read() -> None:
    lines = PAGE.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| question")]

    assert len(answers()) == len(rows) >= 20
