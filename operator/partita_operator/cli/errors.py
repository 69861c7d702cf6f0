"""The errors of the command line, each with its exit code."""

import click

from partita_operator.cli.exit_codes import ExitCode


class BadInput(click.ClickException):
    """A file or an option that cannot be used: exit code 2."""

    exit_code = ExitCode.BAD_INPUT
