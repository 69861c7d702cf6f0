"""Planners that behave badly, for processes that import them."""

import ctypes
import os
import resource
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


def takes_all_memory(_problem: PlanningProblem) -> Outcome:
    """Allocates and writes to 2 GiB."""
    return NoPlan(NoPlanReason.NO_POOLS, str(len(bytearray(b"x") * (2 << 30))))


def takes_all_native_memory(_problem: PlanningProblem) -> Outcome:
    """Dies as HiGHS does if it gets no memory."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    if malloc(ctypes.c_size_t(2 << 30)) is None:
        os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
        os.abort()
    return NoPlan(NoPlanReason.NO_POOLS, "it got 2 GiB")


def computes_despite_its_limit(problem: PlanningProblem) -> Outcome:
    """Computes without an end, with one second of CPU time left."""
    used = int(time.process_time())
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    assert hard <= problem.spec.planner.time_limit_seconds + 3600 + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + 1, hard))
    while True:
        pass


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
