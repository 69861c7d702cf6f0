"""Solves each planning problem in a separate process, so that a solve can neither block nor crash the operator.

The process runs `main` of this module. It reads the pickled planner function and problem from standard input, and
writes the pickled outcome to standard output.
"""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem

GRACE_SECONDS: Final = 15.0
"""Time on top of a solve's limit: to start Python, to build the model and to validate the plan."""
CONCURRENT_SOLVES: Final = 2

SMALLER_PROBLEM: Final = "lower planner.maxBatchSize, planner.maxStages or the number of pools"
"""Advice that makes any planning problem smaller."""

Plan = Callable[[PlanningProblem], Outcome]


@dataclass(frozen=True)
class PlannerError:
    """The planner raised an error."""

    message: str


class ProcessSolver:
    """PlanSolver that starts a process for each solve, and kills it at its time limit.

    `plan` is the planner's function; a new process must be able to import it.
    """

    def __init__(
        self, plan: Plan, grace_seconds: float = GRACE_SECONDS, concurrent_solves: int = CONCURRENT_SOLVES
    ) -> None:
        self._plan = plan
        self._grace_seconds = grace_seconds
        self._slots = asyncio.Semaphore(concurrent_solves)

    async def solve(self, problem: PlanningProblem) -> Outcome:
        """The planner's outcome; NoPlan with reason TimeLimit at the time limit.

        If the planner raises or its process dies: NoPlan with reason InvalidPlan. Cancelling kills the process.
        """
        seconds = problem.spec.planner.time_limit_seconds + self._grace_seconds
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", f"from {__name__} import main; main()", stdin=PIPE, stdout=PIPE, stderr=PIPE
            )
            try:
                question = pickle.dumps((self._plan, problem))
                answer, log = await asyncio.wait_for(process.communicate(question), seconds)
            except TimeoutError:
                return _no_answer_in_time(seconds)
            finally:
                await _end(process)
        return _outcome(answer, log, process.returncode)


def _no_answer_in_time(seconds: float) -> NoPlan:
    return NoPlan(
        NoPlanReason.TIME_LIMIT,
        f"The planner gave no answer within {seconds:g} s and was stopped; raise planner.timeLimitSeconds, "
        f"or {SMALLER_PROBLEM}.",
    )


def _outcome(answer: bytes, log: bytes, exit_code: int | None) -> Outcome:
    if exit_code:
        last_line = (log.decode(errors="replace").strip().splitlines() or ["it wrote no message"])[-1]
        return NoPlan(
            NoPlanReason.INVALID_PLAN,
            f"The planner's process died with exit code {exit_code} ({last_line}). If it ran out of "
            f"memory, raise the operator's memory limit, or {SMALLER_PROBLEM}.",
        )
    outcome: Outcome | PlannerError = pickle.loads(answer)
    if isinstance(outcome, PlannerError):
        return NoPlan(NoPlanReason.INVALID_PLAN, f"The planner failed: {outcome.message}")
    return outcome


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def main() -> None:
    """Reads a planner function and a problem from standard input and writes the outcome to standard output."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the solver prints must not mix with the outcome
        plan, problem = pickle.load(sys.stdin.buffer)
        try:
            answer: Outcome | PlannerError = plan(problem)
        except Exception as error:
            answer = PlannerError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
