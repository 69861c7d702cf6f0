"""The reference of the command line: every command with its usage, arguments and options, as `--help` prints them."""

import inspect
from collections.abc import Iterator
from typing import Any, Final

import click

from partita_devtools.docs.markdown import anchor, code, heading, page, prose, table

_PREFORMATTED: Final = "\b"
"""Click's mark of a paragraph whose line breaks stay."""


def command_page(root: click.Command, name: str) -> str:
    """The page of a command and all its subcommands."""
    return page(
        "# Commands",
        f"`{name} COMMAND --help` prints the same. [Exit codes](exit-codes.md) lists what a command returns.",
        *_sections(root, click.Context(root, info_name=name), level=2),
    )


def _sections(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    path = context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield page(
        heading(level, code(path), anchor(path)),
        _paragraphs(command.help),
        f"```text\n{usage}\n```",
        _options(command, context),
        _paragraphs(command.epilog),
    ).rstrip()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _sections(found, click.Context(found, parent=context, info_name=name), min(level + 1, 4))


def _options(command: click.Command, context: click.Context) -> str:
    records = [
        record
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) is not None and "--help" not in record[0]
    ]
    return table(["option", "description"], [[code(flags), prose(text)] for flags, text in records]) if records else ""


def _paragraphs(text: Any) -> str:
    """Click's help text as Markdown: paragraphs, and blocks whose line breaks stay."""
    blocks = inspect.cleandoc(str(text or "")).split("\n\n")
    return "\n\n".join(
        f"```text\n{block.removeprefix(_PREFORMATTED).strip()}\n```"
        if block.startswith(_PREFORMATTED)
        else prose(block)
        for block in blocks
    )
