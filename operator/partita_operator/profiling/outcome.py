"""The result of a profiling run, read from its log."""

from typing import Final

from partita_api.profile import Profile
from partita_operator.ports import ProfileRun, RunPhase
from partita_profiling.result import LOG_TAIL_LINES, parse_result

_MOST_CHARACTERS: Final = 700


def finished_run(log: str, why: str = "") -> ProfileRun:
    """The run that ended with this log; `why` is its host's reason, used if the log has no result."""
    result = parse_result(log)
    if isinstance(result, Profile):
        return ProfileRun(RunPhase.SUCCEEDED, profile=result)
    if result.reason == "NoResult" and why:
        return ProfileRun(RunPhase.FAILED, message=f"{result.message} ({why})")
    return ProfileRun(RunPhase.FAILED, message=result.message)


def over_time(seconds: float, why: str, log: str) -> ProfileRun:
    """A run that was stopped at its time limit."""
    end = log_tail(log)
    return ProfileRun(
        RunPhase.FAILED,
        message=f"The run was stopped after its time limit of {seconds:g} s. {why}".rstrip(". ")
        + ". Check that accelerators of its pool are free, or raise profiling.timeoutSeconds of the chart."
        + (f" Its log ends: {end}" if end else ""),
    )


def log_tail(log: str, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log that are not empty."""
    return "\n".join([line for line in log.splitlines() if line.strip()][-lines:])[-_MOST_CHARACTERS:]
