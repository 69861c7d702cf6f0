"""Bad input: a clear error at the entry, or an effect limited to this input."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.registry import POLICIES

REF = StageRef("m", "a", 0)


def two_stages() -> dict[str, Any]:
    """A valid plan as a document."""
    return plan_of(module("m").pipeline(4, stage("one"), stage("two"))).model_dump()


def spoiled(spoil: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The plan with an error in its only module."""
    document = two_stages()
    spoil(document["modules"][0])
    return document


@pytest.mark.parametrize(
    ("document", "want_message"),
    [
        pytest.param(
            spoiled(lambda m: m["pipelines"][0]["stages"][1].update(first_block=3, end_block=4)),
            "stage 0 ends before block 1, and stage 1 begins with block 3",
            id="a block between two stages",
        ),
        pytest.param(
            spoiled(lambda m: m["pipelines"][0]["stages"][1].update(first_block=0)),
            "stages must meet",
            id="a block in two stages",
        ),
        pytest.param(
            spoiled(lambda m: m["pipelines"][0]["stages"][0].update(end_block=0)),
            "one block or more, not .0, 0.",
            id="a stage without blocks",
        ),
        pytest.param(
            spoiled(lambda m: m["pipelines"][0].update(stages=[])), "no stage", id="a pipeline without stages"
        ),
        pytest.param(spoiled(lambda m: m.update(pipelines=[])), "no pipeline", id="a module without pipelines"),
        pytest.param(
            spoiled(lambda m: m["pipelines"][0].update(batch_size=5)),
            "1 to 4, not for 5",
            id="no latency for the batch",
        ),
        pytest.param(spoiled(lambda m: m["pipelines"][0].update(batch_size=0)), "not for 0", id="empty batches"),
        pytest.param(
            spoiled(lambda m: m["pipelines"][0]["stages"][0].update(latency_micros=[-1, 2, 3, 4])),
            "a latency is negative",
            id="a negative latency",
        ),
        pytest.param(
            spoiled(lambda m: m.update(pipelines=[*m["pipelines"], *m["pipelines"]])),
            "pipeline 'a' exists twice",
            id="a pipeline twice",
        ),
        pytest.param(
            {**two_stages(), "modules": [*two_stages()["modules"], *two_stages()["modules"]]},
            "module 'm' exists twice",
            id="a module twice",
        ),
    ],
)
def test_invalid_plan_is_refused(document: dict[str, Any], want_message: str) -> None:
    with pytest.raises(ValidationError, match=want_message):
        SchedulingPlan.model_validate(document)


def test_empty_plan_serves_nothing() -> None:
    core = SchedulingCore(plan_of())

    assert core.advance(0) == []
    assert core.next_wakeup() is None
    with pytest.raises(KeyError, match="no module 'm'"):
        core.arrive(0, "m", 1000, 0)


def test_switch_to_an_empty_plan_drops_waiting_requests_and_finishes_running_ones() -> None:
    driver = Driver(plan_of(module("m").pipeline(1, stage("gpu", alpha=0, beta=1000)))).all_join()
    driver.arrive(0, "m", 0, 5000)
    driver.arrive(1, "m", 0, 5000)
    driver.at(10, lambda: driver.core.switch_plan(plan_of(), 10))
    driver.run()

    assert driver.answers == {0: (1000, 0)}
    assert driver.reasons() == {1: DropReason.NO_WORKERS}


@pytest.mark.parametrize("policy", POLICIES)
def test_clock_that_goes_back_counts_as_stopped(policy: str) -> None:
    core = SchedulingCore(plan_of(module("m").pipeline(1, stage("gpu", alpha=0, beta=1000)), policy=policy))
    core.worker_joined(REF, "w", "n", 500)
    core.advance(50_000)
    core.arrive(0, "m", 90_000, 100)
    wakeup = core.next_wakeup()
    assert wakeup is not None
    assert wakeup >= 50_000
    (dispatch,) = core.advance(max(wakeup, 10_000))
    assert min(dispatch.starts) >= 50_000
    core.completed(dispatch.batch_id, 0, 200)
    core.arrive(1, "m", 99_000, 300)
    (again,) = core.advance(core.next_wakeup() or 0)

    assert min(again.starts) >= 50_000
    assert core.advance(0) == []
    assert core.signals(99_000).modules["m"].in_time == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("deadline", [-5, 0, 2000, 2999], ids=["negative", "zero", "past", "just past"])
def test_deadline_in_the_past(policy: str, deadline: int) -> None:
    driver = Driver(plan_of(module("m").pipeline(2, stage("gpu", alpha=0, beta=1000)), policy=policy)).all_join()
    driver.arrive(0, "m", 3000, deadline)
    driver.arrive(1, "m", 3000, 9000)
    driver.run()

    late = not POLICIES[policy].meets_deadlines
    assert driver.reasons() == ({} if late else {0: DropReason.TOO_LATE})
    assert set(driver.answers) == ({0, 1} if late else {1})
    assert driver.core.signals(driver.now).modules["m"].late == late


@pytest.mark.parametrize(
    ("took", "want_correction", "want_late"),
    [
        pytest.param(10_000, 10.0, 20, id="ten times slower"),
        pytest.param(100, 0.1, 0, id="ten times faster"),
    ],
)
def test_profile_with_ten_times_wrong_latencies(took: int, want_correction: float, want_late: int) -> None:
    plan = plan_of(module("m").pipeline(1, stage("gpu", alpha=0, beta=1000)))
    driver = Driver(plan, took=lambda *_: took).all_join()
    for number in range(200):
        driver.arrive(number, "m", number * 15_000, number * 15_000 + 13_000)
    driver.run()

    signals = driver.core.signals(driver.now)
    assert signals.stages[REF].correction == pytest.approx(want_correction, rel=0.1)
    assert signals.modules["m"].late <= want_late
    assert set(range(100, 200)) <= set(driver.answers)
