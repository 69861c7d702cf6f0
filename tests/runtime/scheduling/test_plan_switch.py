"""A new plan becomes current between two batches, and no request is lost."""

import pytest
from tests.runtime.scheduling.plans import Driver, module, plan_of, refs, stage, worker_name

from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan

OLD = plan_of(module("m").pipeline(4, stage("gpu", replicas=2)), name="old")
SAME = plan_of(module("m").pipeline(8, stage("gpu", replicas=3)), name="same stage, larger batch")
OTHER = plan_of(module("m").pipeline(4, stage("big", replicas=2), stage("gpu")), name="other")
WITHOUT = plan_of(module("n").pipeline(4, stage("gpu")), name="without m")


def join_all(driver: Driver, plan: SchedulingPlan) -> None:
    """The workers of another plan join beside those of the current one."""
    for ref, spec in refs(plan):
        for replica in range(spec.replicas):
            name = f"{plan.name}:{worker_name(ref, replica)}"
            driver.core.worker_joined(ref, name, name, driver.now, plan.name)


@pytest.mark.parametrize(
    ("switch_to", "with_workers"),
    [
        pytest.param(SAME, False, id="same stage, workers stay"),
        pytest.param(SAME, True, id="same stage, more workers"),
        pytest.param(OTHER, True, id="other stages"),
    ],
)
def test_switch_under_load_loses_nothing(switch_to: SchedulingPlan, with_workers: bool) -> None:
    driver = Driver(OLD).all_join()
    for number in range(400):
        driver.arrive(number, "m", number * 300, number * 300 + 5000)
    if with_workers:
        driver.at(20_000, lambda: join_all(driver, switch_to))

    def switch() -> None:
        driver.core.switch_plan(switch_to, driver.now)
        driver.plan = switch_to

    driver.at(60_000, switch)
    driver.run()

    assert driver.drops == {}
    assert all(at <= number * 300 + 5000 for number, (at, _) in driver.answers.items())
    assert len(driver.answers) == 400
    counted = driver.core.signals(driver.now).modules["m"]
    assert (counted.arrived, counted.in_time) == (400, 400)


def test_dispatched_batches_finish_on_the_old_workers() -> None:
    driver = Driver(OLD).all_join()
    for number in range(4):
        driver.arrive(number, "m", 0, 1000)
    driver.at(100, lambda: driver.core.switch_plan(OTHER, driver.now))
    driver.run()

    assert {at for at, _ in driver.answers.values()} == {900}


def test_queued_requests_wait_for_the_workers_of_the_new_plan() -> None:
    driver = Driver(OLD).all_join()
    driver.arrive(0, "m", 0, 5000)
    driver.at(10, lambda: driver.core.switch_plan(OTHER, driver.now))
    driver.run(until=1000)
    assert driver.dispatches == []
    driver.plan = OTHER
    driver.all_join().run()

    assert list(driver.answers) == [0]


def test_workers_of_an_unknown_plan_wait_for_it() -> None:
    driver = Driver(OLD).all_join()
    join_all(driver, OTHER)

    assert driver.core.signals(0).stages[StageRef("m", "a", 0)].workers == ("m.a.0.0", "m.a.0.1")
    driver.core.switch_plan(OTHER, 0)
    assert driver.core.signals(0).stages[StageRef("m", "a", 0)].workers == ("other:m.a.0.0", "other:m.a.0.1")


def test_rollback_finds_the_old_workers() -> None:
    driver = Driver(OLD).all_join()
    driver.core.switch_plan(OTHER, 10)
    driver.core.worker_draining("m.a.0.0", 20)
    driver.core.switch_plan(OLD, 30)

    assert driver.core.signals(30).stages[StageRef("m", "a", 0)].workers == ("m.a.0.1",)


def test_requests_of_a_module_that_the_new_plan_lacks_are_dropped() -> None:
    driver = Driver(OLD).all_join()
    driver.arrive(0, "m", 0, 5000)
    driver.at(10, lambda: driver.core.switch_plan(WITHOUT, driver.now))
    driver.run()

    assert driver.reasons() == {0: DropReason.NO_WORKERS}


def test_correction_is_kept_for_a_stage_that_stays() -> None:
    driver = Driver(OLD, took=lambda _dispatch, _stage, reserved: 2 * reserved).all_join()
    for number in range(40):
        driver.arrive(number, "m", number * 3000, number * 3000 + 9000)
    driver.run()
    ref = StageRef("m", "a", 0)
    before = driver.core.signals(driver.now).stages[ref].correction
    assert before > 1.5
    driver.core.switch_plan(SAME, driver.now)

    assert driver.core.signals(driver.now).stages[ref].correction == before
