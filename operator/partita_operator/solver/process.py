"""Solves each planning problem in a separate process, so that a solve can neither block nor crash the operator.

The process runs `main` of this module. It reads the pickled planner function and problem from standard input, and
writes the pickled outcome to standard output. Its memory and CPU time are limited: profiles and sessions come from
users, and one of them must not take what the operator and the other searches need.
"""

import asyncio
import os
import pickle
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from partita_operator.settings.planning import PlanningSettings
from partita_operator.solver.slots import Slots
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem

GRACE_SECONDS: Final = 15.0
"""Time on top of a solve's limit: to start Python, to build the model and to validate the plan."""
MIB: Final = 1 << 20
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Variables of the process. HiGHS has one thread, too."""

SMALLER_PROBLEM: Final = "lower planner.maxBatchSize, planner.maxStages or the number of pools"
"""Advice that makes any planning problem smaller."""

Plan = Callable[[PlanningProblem], Outcome]


@dataclass(frozen=True)
class PlannerError:
    """The planner raised an error."""

    message: str


@dataclass(frozen=True)
class OutOfMemory:
    """The planner needed more memory than it may have."""


class ProcessSolver:
    """PlanSolver that starts a process for each solve, and kills it at its time limit.

    `plan` is the planner's function; a new process must be able to import it.
    """

    def __init__(
        self,
        plan: Plan,
        settings: PlanningSettings = PlanningSettings(),  # noqa: B008 - it is frozen
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._slots = Slots(settings.concurrent_searches)

    async def solve(self, namespace: str, problem: PlanningProblem) -> Outcome:
        """The planner's outcome; NoPlan with reason TimeLimit at the time limit.

        If the planner raises or its process dies: NoPlan with reason InvalidPlan. Cancelling kills the process.
        """
        limited = within(problem, self._settings.max_time_limit_seconds)
        async with self._slots.taken(namespace):
            outcome = await self._solve(limited)
        if limited is not problem and isinstance(outcome, NoPlan) and outcome.reason is NoPlanReason.TIME_LIMIT:
            return replace(outcome, message=f"{outcome.message} {_capped(self._settings.max_time_limit_seconds)}")
        return outcome

    async def _solve(self, problem: PlanningProblem) -> Outcome:
        seconds = problem.spec.planner.time_limit_seconds + self._grace_seconds
        program = f"from {__name__} import main; main({self._settings.memory_mib * MIB}, {ceil(seconds)})"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **ONE_THREAD}
        )
        try:
            question = pickle.dumps((self._plan, problem))
            answer, log = await asyncio.wait_for(process.communicate(question), seconds)
        except TimeoutError:
            return _no_answer_in_time(seconds)
        finally:
            await _end(process)
        if process.returncode == -signal.SIGXCPU:
            return _no_answer_in_time(seconds)
        return _outcome(answer, log, process.returncode, self._settings.memory_mib)


def within(problem: PlanningProblem, seconds: int) -> PlanningProblem:
    """The problem with a time limit of at most so many seconds; the same object if it has one already."""
    planner = problem.spec.planner
    if planner.time_limit_seconds <= seconds:
        return problem
    limited = planner.model_copy(update={"time_limit_seconds": seconds})
    return replace(problem, spec=problem.spec.model_copy(update={"planner": limited}))


def _capped(seconds: int) -> str:
    return (
        f"The platform allows at most {seconds} s (planning.maxTimeLimitSeconds of the chart), whatever "
        "planner.timeLimitSeconds is."
    )


def _no_answer_in_time(seconds: float) -> NoPlan:
    return NoPlan(
        NoPlanReason.TIME_LIMIT,
        f"The planner gave no answer within {seconds:g} s and was stopped; raise planner.timeLimitSeconds, "
        f"or {SMALLER_PROBLEM}.",
    )


def _outcome(answer: bytes, log: bytes, exit_code: int | None, memory_mib: int) -> Outcome:
    memory = (
        f"A search may have {memory_mib} MiB of memory: {SMALLER_PROBLEM}, or raise planning.memoryMib of the chart, "
        "and resources with it"
    )
    if exit_code:
        last_line = (log.decode(errors="replace").strip().splitlines() or ["it wrote no message"])[-1]
        return NoPlan(
            NoPlanReason.INVALID_PLAN,
            f"The planner's process died with exit code {exit_code} ({last_line}). {memory}.",
        )
    outcome: Outcome | PlannerError | OutOfMemory = pickle.loads(answer)
    if isinstance(outcome, OutOfMemory):
        return NoPlan(NoPlanReason.INVALID_PLAN, f"The planner ran out of memory. {memory}.")
    if isinstance(outcome, PlannerError):
        return NoPlan(NoPlanReason.INVALID_PLAN, f"The planner failed: {outcome.message}")
    return outcome


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def main(memory_bytes: int, cpu_seconds: int) -> None:
    """Reads a planner function and a problem from standard input and writes the outcome to standard output."""
    # RLIMIT_DATA counts what is written to. RLIMIT_AS would count address space, too, which threads and allocators
    # reserve in large pieces and never use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    # Ends the process also if the operator ends before it.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the solver prints must not mix with the outcome
        plan, problem = pickle.load(sys.stdin.buffer)
        try:
            answer: Outcome | PlannerError | OutOfMemory = plan(problem)
        except MemoryError:
            answer = OutOfMemory()
        except Exception as error:
            answer = PlannerError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
