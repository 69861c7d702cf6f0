"""How every command that talks to a cluster is told which one, and how a session in it is named."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

POOL_PREFIXES: Final = ("gpool/", "gpupool/", "gpupools/")
SESSION_PREFIXES: Final = ("isess/", "inferencesession/", "inferencesessions/")


@dataclass(frozen=True)
class ClusterPlace:
    """A cluster, and a namespace in it."""

    kubeconfig: Path | None = None
    """None: $KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """None: the kubeconfig's current one."""
    namespace: str | None = None
    """None: the context's own, else default."""


def cluster_options(command: F) -> F:
    """Adds `--kubeconfig`, `--context` and `--namespace`, passed as `place: ClusterPlace`."""

    @wraps(command)
    def with_place(*args: Any, kubeconfig: Path | None, context: str | None, namespace: str | None, **rest: Any) -> Any:
        return command(*args, place=ClusterPlace(kubeconfig, context, namespace), **rest)

    made: Any = with_place
    for option in (
        click.option("--namespace", "-n", help="Namespace of the session. Default: the context's, else default."),
        click.option("--context", help="Context of the kubeconfig. Default: its current one."),
        click.option(
            "--kubeconfig",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Cluster to talk to. Default: $KUBECONFIG or ~/.kube/config.",
        ),
    ):
        made = option(made)
    decorated: F = made
    return decorated


def pool_name(reference: str) -> str | None:
    """The name in `gpool/NAME`; None if the text names no pool."""
    for prefix in POOL_PREFIXES:
        if reference.startswith(prefix):
            return reference.removeprefix(prefix)
    return None


def session_name(reference: str) -> str:
    """The name in `isess/NAME` or `NAME`."""
    for prefix in SESSION_PREFIXES:
        reference = reference.removeprefix(prefix)
    return reference


def is_session_reference(text: str) -> bool:
    """Whether the text says that it names a session of a cluster: `isess/NAME`."""
    return text.startswith(SESSION_PREFIXES)


session_argument = click.argument(
    "session", metavar="SESSION", callback=lambda _context, _parameter, value: session_name(value)
)
"""The argument SESSION: `isess/NAME` or `NAME`, passed as `session: str`."""
