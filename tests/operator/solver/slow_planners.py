"""Planners that behave badly, for processes that import them."""

import os
import time

from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem


def echoes(problem: PlanningProblem) -> Outcome:
    """Answers at once, with the text of its problem."""
    return NoPlan(NoPlanReason.NO_POOLS, f"{problem.session.name} at {problem.rate:g}/s")


def chatty(problem: PlanningProblem) -> Outcome:
    """First prints a lot to standard output, as solvers do."""
    os.write(1, b"Coin0506I presolved\n" * 10_000)
    return echoes(problem)


def hangs(problem: PlanningProblem) -> Outcome:
    """Never answers; leaves its process id where the test looks for it."""
    with open(problem.session.name, "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(1)


def raises(_problem: PlanningProblem) -> Outcome:
    """Fails as Python code does."""
    raise ZeroDivisionError("a pool without bandwidth")


def dies(_problem: PlanningProblem) -> Outcome:
    """Dies as native code does."""
    os.write(2, b"highs: out of memory\n")
    os.abort()


def counts(problem: PlanningProblem) -> Outcome:
    """Marks in a folder that it runs, waits a moment for its peers, and returns how many ran at the same time."""
    folder = problem.session.name
    mark = os.path.join(folder, str(os.getpid()))
    open(mark, "w").close()
    deadline = time.monotonic() + 1.5
    most = 0
    while time.monotonic() < deadline:
        most = max(most, len(os.listdir(folder)))
        time.sleep(0.02)
    os.remove(mark)
    return NoPlan(NoPlanReason.NO_POOLS, str(most))
