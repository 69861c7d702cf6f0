"""The planner in its own process: it answers, and its faults do not stop the operator."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.operator.solver import slow_planners
from tests.patience import PATIENCE_SECONDS

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pipelineplan import SessionRef
from partita_operator.settings.planning import PlanningSettings
from partita_operator.solver.process import Plan, ProcessSolver, within
from partita_planner.problem import NoPlan, NoPlanReason, PlanningProblem

REPOSITORY = Path(__file__).parents[3]


def problem(name: str = "traffic", seconds: int = 1) -> PlanningProblem:
    spec = InferenceSessionSpec.model_validate(
        {
            "slo": {"latencyMs": 100},
            "rate": {"requestsPerSecond": 50},
            "modules": [{"name": "m", "model": {"entrypoint": "a:b"}, "input": {"shape": [1]}}],
            "planner": {"timeLimitSeconds": seconds},
        }
    )
    return PlanningProblem(session=SessionRef(name=name), spec=spec, rate=50.0, pools=())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def importable_planners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.parametrize("plan", [slow_planners.echoes, slow_planners.chatty], ids=["quiet", "prints to stdout"])
async def test_the_answer_is_returned(plan: Plan) -> None:
    outcome = await ProcessSolver(plan).solve("vision", problem())
    assert outcome == NoPlan(NoPlanReason.NO_POOLS, "traffic at 50/s")


@pytest.mark.parametrize(
    ("plan", "want_words"),
    [
        pytest.param(slow_planners.raises, ["ZeroDivisionError", "a pool without bandwidth"], id="raises"),
        pytest.param(slow_planners.dies, ["-6", "highs: out of memory", "planner.maxBatchSize"], id="dies"),
    ],
)
async def test_a_broken_planner_gives_no_plan_with_its_reason(plan: Plan, want_words: list[str]) -> None:
    outcome = await ProcessSolver(plan).solve("vision", problem())
    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.INVALID_PLAN
    assert [word for word in want_words if word not in outcome.message] == []


async def test_a_planner_over_its_time_limit_is_killed_without_blocking_the_loop(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticking = asyncio.create_task(tick())
    outcome = await ProcessSolver(slow_planners.hangs, grace_seconds=3).solve("vision", problem(str(pid_file)))
    ticking.cancel()
    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.TIME_LIMIT
    assert "planner.timeLimitSeconds" in outcome.message
    assert ticks >= 10
    assert not is_running(int(pid_file.read_text()))


async def test_cancelling_a_solve_kills_its_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    solving = asyncio.create_task(ProcessSolver(slow_planners.hangs).solve("vision", problem(str(pid_file))))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline, "the planner did not start"
        await asyncio.sleep(0.05)
    solving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await solving
    assert not is_running(int(pid_file.read_text()))


async def test_no_more_than_the_allowed_solves_run_at_once(tmp_path: Path) -> None:
    solver = ProcessSolver(slow_planners.counts, PlanningSettings(concurrent_searches=1))
    outcomes = await asyncio.gather(*(solver.solve("vision", problem(str(tmp_path))) for _ in range(3)))
    assert [outcome.message for outcome in outcomes if isinstance(outcome, NoPlan)] == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("plan", "want_words"),
    [
        pytest.param(
            slow_planners.takes_all_memory, ["ran out of memory", "300 MiB", "planning.memoryMib"], id="Python"
        ),
        pytest.param(slow_planners.takes_all_native_memory, ["exit code -6", "bad_alloc", "300 MiB"], id="native code"),
    ],
)
async def test_a_planner_beyond_its_memory_gives_no_plan(plan: Plan, want_words: list[str]) -> None:
    outcome = await ProcessSolver(plan, PlanningSettings(memory_mib=300)).solve("vision", problem())
    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.INVALID_PLAN
    assert [word for word in want_words if word not in outcome.message] == []


async def test_the_kernel_ends_a_planner_that_outlives_the_operator() -> None:
    """The solver itself waits for an hour here, as if nothing waited for the process."""
    outcome = await ProcessSolver(slow_planners.computes_despite_its_limit, grace_seconds=3600).solve(
        "vision", problem()
    )
    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.TIME_LIMIT


@pytest.mark.parametrize(
    ("seconds", "cap", "want"),
    [
        pytest.param(30, 300, 30, id="below"),
        pytest.param(300, 300, 300, id="equal"),
        pytest.param(3600, 300, 300, id="above"),
    ],
)
def test_a_session_gets_no_more_time_than_the_platform_allows(seconds: int, cap: int, want: int) -> None:
    asked = problem(seconds=seconds)

    limited = within(asked, cap)

    assert limited.spec.planner.time_limit_seconds == want
    assert (limited is asked) == (seconds <= cap)


async def test_a_planner_over_the_platforms_time_limit_is_killed_and_the_message_names_the_setting(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    solver = ProcessSolver(slow_planners.hangs, PlanningSettings(max_time_limit_seconds=1), grace_seconds=3)

    outcome = await solver.solve("vision", problem(str(pid_file), seconds=3600))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.TIME_LIMIT
    assert "at most 1 s (planning.maxTimeLimitSeconds of the chart)" in outcome.message
    assert not is_running(int(pid_file.read_text()))
