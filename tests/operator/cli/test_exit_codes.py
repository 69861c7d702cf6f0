"""The exit codes: the page and the help have the codes of the enum."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import SUBCOMMANDS, main

PAGE = Path(__file__).parents[3] / "docs/reference/exit-codes.md"


def test_the_page_has_the_codes_of_the_enum() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(str(code.value), code.name, code.meaning) for code in ExitCode]


@pytest.mark.parametrize("page", [PAGE, PAGE.with_name("cli.md")], ids=lambda page: page.name)
def test_the_page_has_every_command(page: Path) -> None:
    first_column = " ".join(re.findall(r"^\| (`[^|]+) \|", page.read_text(), re.MULTILINE))
    named = {name.split()[0] for name in re.findall(r"`([^`]+)`", first_column)}
    assert named == SUBCOMMANDS.keys()


def test_the_help_has_the_codes_of_the_enum() -> None:
    text = " ".join(CliRunner().invoke(main, ["--help"]).output.split())
    assert ExitCode.epilog() in text
