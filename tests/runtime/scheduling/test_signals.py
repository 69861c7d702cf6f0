"""Counters. Rates and fractions over a window are differences of them."""

from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_runtime.scheduling.events import DropReason, StageRef

REF = StageRef("m", "a", 0)


def served() -> Driver:
    """Two batches on one of two workers, then a request that is too late; every batch takes 1000 us."""
    driver = Driver(plan_of(module("m").pipeline(2, stage("gpu", replicas=2, alpha=0, beta=1000)))).all_join()
    for number, at in enumerate([0, 0, 2000, 2400]):
        driver.arrive(number, "m", at, at + 5000)
    driver.arrive(4, "m", 4000, 4500)
    return driver.run()


def test_counters_of_a_module() -> None:
    counted = served().core.signals(5000).modules["m"]

    assert (counted.arrived, counted.dispatched, counted.in_time, counted.late, counted.queued) == (5, 4, 4, 0, 0)
    assert counted.dropped == {DropReason.TOO_LATE: 1}
    assert counted.queueing_micros == 400


def test_counters_of_a_pipeline_and_a_stage() -> None:
    signals = served().core.signals(5000)

    pipeline, counted = signals.pipelines["m", "a"], signals.stages[REF]
    assert (pipeline.batches, pipeline.requests, pipeline.in_time) == (2, 4, 4)
    assert pipeline.batch_sizes == {2: 2}
    assert (counted.pool, counted.workers) == ("gpu", ("m.a.0.0", "m.a.0.1"))
    assert (counted.executions, counted.predicted_micros, counted.actual_micros) == (2, 2000, 2000)


def test_busy_time_counts_running_batches_up_to_now() -> None:
    driver = Driver(plan_of(module("m").pipeline(1, stage("gpu", alpha=0, beta=1000)))).all_join()
    driver.arrive(0, "m", 100, 5000)
    driver.run(until=100)
    busy = [driver.core.signals(now).workers["m.a.0.0"].busy_micros for now in (100, 400, 1100)]
    driver.run()

    assert busy == [0, 300, 1000]
    assert driver.core.signals(3000).workers["m.a.0.0"].busy_micros == 1000


def test_late_answers_are_counted_as_late() -> None:
    driver = Driver(plan_of(module("m").pipeline(1, stage("gpu"))), took=lambda *_: 700).all_join()
    driver.arrive(0, "m", 0, 650)
    driver.run()

    counted = driver.core.signals(driver.now)
    assert (counted.modules["m"].in_time, counted.modules["m"].late) == (0, 1)
    assert counted.pipelines["m", "a"].late == 1
