"""All commands of `partita`, also those of its groups."""

from collections.abc import Iterator, Mapping

import click

from partita_operator.cli.main import main


def leaf_commands() -> Mapping[str, click.Command]:
    """Every command that does something, by its words after `partita`."""
    return dict(_leaves(main, ()))


def _leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _leaves(inner, (*words, name))
