"""Plans prefer present accelerators to those of an elastic pool that come later."""

from dataclasses import replace

import pytest
from tests.builders import SessionBuilder, linear_profiles, pool, problem, session
from tests.planner.problems.planned import planned

from partita_api.inferencesession import Objective, ObjectiveType
from partita_planner.problem import PlanningProblem

ONE = session("one").slo(50).rate(100).model("m")


def asked(built: SessionBuilder, present: int, price: str) -> PlanningProblem:
    """Four absent accelerators at 1 an hour, and present ones of the same class at another price."""
    made = problem(
        built,
        [pool("absent").gpus(4).price("1"), pool("present").gpus(present).price(price)],
        linear_profiles(["m"], {"absent": 1.0, "present": 1.0}),
    )
    absent, there = made.pools
    return replace(made, pools=(replace(absent, absent=4), there))


@pytest.mark.parametrize(
    ("present", "price", "want"),
    [
        pytest.param(4, "1", {"present"}, id="at the same price the present ones"),
        pytest.param(4, "1.01", {"present"}, id="also if absent ones save one percent"),
        pytest.param(4, "1.1", {"absent"}, id="absent ones that save more"),
        pytest.param(0, "1", {"absent"}, id="absent ones if none is present"),
    ],
)
def test_present_accelerators_come_first(present: int, price: str, want: set[str]) -> None:
    assert planned(asked(ONE, present, price)).gpus().keys() == want


def test_the_plan_takes_absent_ones_as_far_as_the_present_do_not_suffice() -> None:
    alone = problem(ONE, [pool("present").gpus(1)], linear_profiles(["m"], {"present": 1.0}))
    assert planned(alone).gpus() == {"present": 1}

    many = ONE.rate(1000)
    whole = planned(problem(many, [pool("present").gpus(8)], linear_profiles(["m"], {"present": 1.0}))).gpus()
    growing = problem(many, [pool("present").gpus(8)], linear_profiles(["m"], {"present": 1.0}))
    growing = replace(growing, pools=(replace(growing.pools[0], absent=7),))
    assert planned(growing).gpus() == whole
    assert whole["present"] > 1


def test_the_highest_throughput_uses_all() -> None:
    most = ONE.with_spec(objective=Objective(type=ObjectiveType.THROUGHPUT))
    assert sum(planned(asked(most, 2, "1")).gpus().values()) == 6
