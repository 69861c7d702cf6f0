"""Output: text for people, JSON or YAML for programs. Results go to stdout, progress to stderr."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from rich.console import Console

from partita_operator.cli.errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])

console = Console()
progress = Console(stderr=True, highlight=False)


def report(line: str) -> None:
    """Print a line of progress."""
    progress.print(line, markup=False, soft_wrap=True)


def time_left(done: float, total: float, elapsed_s: float) -> str:
    """How long the rest takes if it goes on at the same speed, in words; empty if nothing is done yet."""
    if done <= 0:
        return ""
    seconds = elapsed_s * (total - done) / done
    return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write results to the file, or to files in the folder. Raises BadInput with its name if that fails.

    The error of a full disk does not have the name.
    """
    try:
        yield
    except OSError as error:
        raise BadInput(f"{error.filename or path} cannot be written: {error.strerror}") from error


class OutputFormat(StrEnum):
    """The values of --output."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def output_option(command: F) -> F:
    """Adds `--output text|json|yaml`, passed as `output: OutputFormat`."""
    option = click.option(
        "--output",
        "-o",
        type=click.Choice([str(f) for f in OutputFormat]),
        default=str(OutputFormat.TEXT),
        callback=lambda _ctx, _param, value: OutputFormat(value),
        help="How to print the result.",
        show_default=True,
    )
    return option(command)


def emit(data: Any, output: OutputFormat, text: Callable[[Console], None] | None = None) -> None:
    """Print `data` (plain JSON data) as JSON or YAML, or call `text` to print it for people.

    Without `text` people see what the command reports on stderr.
    """
    match output:
        case OutputFormat.JSON:
            click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        case OutputFormat.YAML:
            click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
        case OutputFormat.TEXT if text is not None:
            text(console)
