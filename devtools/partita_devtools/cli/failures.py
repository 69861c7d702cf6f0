"""How the commands end if a part of the development environment fails."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from partita_devtools.errors import DevError

F = TypeVar("F", bound=Callable[..., Any])


def dev_errors_as_failure(command: F) -> F:
    """A DevError of the command becomes its one-line failure."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except DevError as error:
            raise click.ClickException(str(error)) from error

    result: Any = wrapped
    return result  # type: ignore[no-any-return]
