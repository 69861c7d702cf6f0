"""What a profiling run came to, from its log."""

from typing import Final

from partita_api.profile import Profile
from partita_operator.ports import ProfileRun, RunPhase
from partita_profiling.result import LOG_TAIL_LINES, parse_result

_MOST_CHARACTERS: Final = 700


def finished_run(log: str, why: str = "") -> ProfileRun:
    """The run that ended with this log; `why` is what its host says of the end, used where the log has no result."""
    result = parse_result(log)
    if isinstance(result, Profile):
        return ProfileRun(RunPhase.SUCCEEDED, profile=result)
    if result.reason == "NoResult" and why:
        return ProfileRun(RunPhase.FAILED, message=f"{result.message} ({why})")
    return ProfileRun(RunPhase.FAILED, message=result.message)


def over_time(seconds: float, why: str, log: str) -> ProfileRun:
    """The run that was stopped since it took too long."""
    end = log_tail(log)
    return ProfileRun(
        RunPhase.FAILED,
        message=f"The run was stopped after its time limit of {seconds:g} s. {why}".rstrip(". ")
        + ". See whether accelerators of its class are free, or raise PARTITA_PROFILE_TIMEOUT_SECONDS."
        + (f" Its log ends: {end}" if end else ""),
    )


def log_tail(log: str, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log, without empty ones."""
    return "\n".join([line for line in log.splitlines() if line.strip()][-lines:])[-_MOST_CHARACTERS:]
