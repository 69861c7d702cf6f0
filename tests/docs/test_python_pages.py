"""Python on pages that need no service: each program runs."""

from typing import Any

import numpy as np
import pytest
from tests.docs.pages import programs

FUNCTIONS, SCHEDULING = "docs/reference/functions.md", "docs/concepts/scheduling.md"
SIMULATION, PLANNER = "docs/tasks/simulation.md", "docs/internals/planner.md"
SDK = "docs/reference/sdk.md"


def execute(program: str, **names: Any) -> dict[str, Any]:
    """The names that the program leaves."""
    exec(program, names)
    return names


def test_a_function() -> None:
    (program,) = programs(FUNCTIONS)
    left = execute(program, np=np, crops=[np.zeros((3, 4, 4))] * 2)

    answer = left["crop"]({"input": np.zeros((3, 8, 8))}, {"detector": [np.zeros((2, 4))]})
    assert answer["classifier"].shape == (2, 3, 4, 4)


def test_calls_of_the_scheduling_core() -> None:
    (program,) = programs(SCHEDULING)
    core = execute(program)["core"]

    assert execute(program.replace("core.next_wakeup()", "wakeup = core.next_wakeup()"))["wakeup"] == 18_000
    assert core.signals(24_000).modules["detector"].in_time == 1


def test_a_simulation() -> None:
    (program,) = programs(SIMULATION)

    assert execute(program)["report"].attainment > 0.9


def test_a_plan() -> None:
    (program,) = programs(PLANNER)

    assert execute(program)["outcome"].plan.gpus() == {"t4": 5}


def test_a_session_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    """The parts that need a cluster run in tests/e2e."""
    build, plan, _serve, _call = programs(SDK)
    left = execute(plan, **execute(build))

    assert "kind: InferenceSession" in capsys.readouterr().out
    assert left["cheaper"].cost_per_hour <= left["plan"].cost_per_hour
