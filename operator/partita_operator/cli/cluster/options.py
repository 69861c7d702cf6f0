"""Options of the subcommands that use a cluster: which cluster, and which session."""

import shlex
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
    """A cluster and a namespace."""

    kubeconfig: Path | None = None
    """None: $KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """None: the kubeconfig's current context."""
    namespace: str | None = None
    """None: the context's namespace, else default."""

    def flags(self, namespace: str) -> str:
        """The options that lead another command to this cluster and to `namespace`, for a shell."""
        words = ["-n", namespace]
        words += ["--context", self.context] if self.context is not None else []
        words += ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig is not None else []
        return shlex.join(words)


def cluster_options(command: F) -> F:
    """Adds `--kubeconfig`, `--context` and `--namespace`, passed as `place: ClusterPlace`."""

    @wraps(command)
    def with_place(*args: Any, kubeconfig: Path | None, context: str | None, namespace: str | None, **rest: Any) -> Any:
        return command(*args, place=ClusterPlace(kubeconfig, context, namespace), **rest)

    decorated: Any = with_place
    for option in (
        click.option(
            "--namespace", "-n", help="Namespace of the session. Default: the context's namespace, else default."
        ),
        click.option("--context", help="Context of the kubeconfig. Default: the current context."),
        click.option(
            "--kubeconfig",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Kubeconfig of the cluster. Default: $KUBECONFIG or ~/.kube/config.",
        ),
    ):
        decorated = option(decorated)
    result: F = decorated
    return result


def pool_name(reference: str) -> str | None:
    """The name in `gpool/NAME`; None if the text is not a reference to a pool."""
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
    """Whether the text is a reference to a session of a cluster: `isess/NAME`."""
    return text.startswith(SESSION_PREFIXES)
