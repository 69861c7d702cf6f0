"""What the SDK raises. Each message says what to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from partita_planner.problem import NoPlan
from partita_runtime.installation import extra_command


class PartitaError(Exception):
    """Something cannot be done; all errors of the SDK are one."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a session."""

    field: str
    """The path of the field, as the API server names it: `spec.modules[0].input.shape[1]`."""
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidSessionError(PartitaError, ValueError):
    """A session that the API server or the operator would refuse."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"session {name} is wrong:\n{lines}")
        self.problems = tuple(problems)


class NoPlanError(PartitaError):
    """There is no plan for a session."""

    def __init__(self, session_key: str, outcome: NoPlan) -> None:
        super().__init__(f"{session_key}: no plan ({outcome.reason}). {outcome.message}")
        self.outcome = outcome
        """The reason, and what would make a plan possible: a longer SLO, a lower rate, more GPUs."""


class ClusterError(PartitaError):
    """The cluster refuses, does not answer, or lacks an object."""


class NotReadyError(PartitaError):
    """A session that does not become ready before a person acts; the message is that of its condition Ready."""


class WaitTimeoutError(PartitaError, TimeoutError):
    """The time to wait is over."""


class InferenceError(PartitaError):
    """A request without an answer."""

    def __init__(self, message: str, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; None if the session did not answer."""
        self.retry_after_s = retry_after_s
        """Seconds after which the session asks to try again, if it does."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Imports modules of an extra. Raises PartitaError with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise PartitaError(f"{what} needs {missing.name}; install it with: {extra_command(extra)}") from missing
