"""Solves planning problems in processes of their own, so that a solve can neither block the operator nor crash it.

The process runs `main` of this module: it reads the planner's entry and the problem from its standard input,
pickled by its parent, and writes the answer back the same way.
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
"""What a solve may take beyond its time limit: to start Python, to build the model and to validate the plan."""
CONCURRENT_SOLVES: Final = 2

SMALLER: Final = "lower planner.maxBatchSize, planner.maxStages or the number of pools"
"""What makes any planning problem easier."""

Plan = Callable[[PlanningProblem], Outcome]


@dataclass(frozen=True)
class PlannerError:
    """The planner raised an error instead of answering."""

    message: str


class ProcessSolver:
    """PlanSolver that starts a fresh process for each solve, and kills it when its time is over.

    `plan` is the planner's entry, a function that a new process can import.
    """

    def __init__(
        self, plan: Plan, grace_seconds: float = GRACE_SECONDS, concurrent_solves: int = CONCURRENT_SOLVES
    ) -> None:
        self._plan = plan
        self._grace_seconds = grace_seconds
        self._slots = asyncio.Semaphore(concurrent_solves)

    async def solve(self, problem: PlanningProblem) -> Outcome:
        """The planner's answer; NoPlan with reason TimeLimit if it did not answer in time.

        A planner that raises or dies gives NoPlan with reason InvalidPlan. Cancelling kills its process.
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
        f"or {SMALLER}.",
    )


def _outcome(answer: bytes, log: bytes, exit_code: int | None) -> Outcome:
    if exit_code:
        last_line = (log.decode(errors="replace").strip().splitlines() or ["it wrote no message"])[-1]
        return NoPlan(
            NoPlanReason.INVALID_PLAN,
            f"The planner's process died with exit code {exit_code} ({last_line}). If it was killed for want of "
            f"memory, give the operator more, or {SMALLER}.",
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
    """Reads a planner and a problem from standard input and writes the answer to standard output."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the solver prints must not mix with the answer
        plan, problem = pickle.load(sys.stdin.buffer)
        try:
            answer: Outcome | PlannerError = plan(problem)
        except Exception as error:
            answer = PlannerError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
