"""Workers join, drain and leave, with and without work."""

import pytest
from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import DropReason, StageRef

REF = StageRef("m", "a", 0)


def driver(replicas: int = 1, batch_size: int = 2) -> Driver:
    """Every batch takes 1000 us."""
    return Driver(plan_of(module("m").pipeline(batch_size, stage("gpu", replicas=replicas, alpha=0, beta=1000))))


def test_requests_of_a_lost_worker_run_on_another() -> None:
    d = driver(replicas=2).all_join()
    for number in range(2):
        d.arrive(number, "m", 0, 3000)
    d.lose("m.a.0.0", 500)
    d.run()

    assert [(at, dispatch.path) for at, dispatch in d.dispatches] == [(0, ("m.a.0.0",)), (500, ("m.a.0.1",))]
    assert {request: at for request, (at, _) in d.answers.items()} == {0: 1500, 1: 1500}


def test_requests_of_a_lost_worker_are_dropped_if_there_is_no_time_left() -> None:
    d = driver(replicas=2).all_join()
    d.arrive(0, "m", 0, 1400)
    d.arrive(1, "m", 0, 1500)
    d.lose("m.a.0.0", 500)
    d.run()

    assert d.reasons() == {0: DropReason.WORKER_LOST}
    assert d.drops[0][0] == 500
    assert d.answers[1][0] == 1500


def test_loss_of_a_worker_that_a_batch_has_passed_does_not_matter() -> None:
    d = Driver(plan_of(module("m").pipeline(1, stage("one"), stage("two")))).all_join()
    d.arrive(0, "m", 0, 1300)
    d.lose("m.a.0.0", 700)
    d.run()

    assert d.answers[0][0] == 1200


def test_execution_of_a_lost_batch_keeps_its_worker_busy() -> None:
    """The worker of stage 1 is lost while stage 0 executes: stage 0 is free only after the end of the lost batch."""
    stages = stage("one", alpha=0, beta=1000), stage("two", replicas=2, alpha=0, beta=1000)
    d = Driver(plan_of(module("m").pipeline(1, *stages))).all_join()
    d.arrive(0, "m", 0, 10_000)
    d.lose("m.a.1.0", 300)
    d.run()

    assert [dispatch.starts for _, dispatch in d.dispatches] == [(0, 1000), (1000, 2000)]
    assert d.answers == {0: (3000, 1)}


def test_draining_worker_finishes_its_batches_and_gets_no_new_ones() -> None:
    d = driver(replicas=1).all_join()
    d.arrive(0, "m", 0, 1100)
    d.at(500, lambda: d.core.worker_draining("m.a.0.0", d.now))
    d.arrive(1, "m", 600, 4000)
    d.run()

    assert d.answers == {0: (1100, 0)}
    assert d.reasons() == {1: DropReason.NO_WORKERS}
    assert d.core.signals(d.now).workers["m.a.0.0"].draining


def test_without_workers_requests_wait_until_their_latest_time() -> None:
    d = driver()
    d.arrive(0, "m", 0, 5000)
    d.arrive(1, "m", 0, 9000)
    d.at(6000, lambda: d.join(REF, 0))
    d.run()

    assert d.drops[0][0] == 4001
    assert d.reasons() == {0: DropReason.NO_WORKERS}
    assert d.answers[1][0] <= 9000


def test_pipeline_without_workers_on_one_stage_is_not_used() -> None:
    d = Driver(plan_of(module("m").pipeline(1, stage("one"), stage("two")).pipeline(1, stage("three", beta=2000))))
    d.join(StageRef("m", "a", 0), 0)
    d.join(StageRef("m", "b", 0), 0)
    d.arrive(0, "m", 0, 5000)
    d.run()

    assert [dispatch.pipeline for _, dispatch in d.dispatches] == ["b"]


def test_joining_twice_has_no_effect() -> None:
    d = driver(replicas=1).all_join().all_join()
    for number in range(3):
        d.arrive(number, "m", 0, 10_000)
    d.run(until=10)

    assert len(d.dispatches) == 1
    assert d.core.signals(10).stages[REF].workers == ("m.a.0.0",)


def test_replacement_gets_the_number_of_the_lost_worker() -> None:
    d = driver(replicas=3).all_join()
    d.core.worker_lost("m.a.0.1", 0)
    d.core.worker_joined(REF, "new", "node", 0)

    assert d.core.signals(0).stages[REF].workers == ("m.a.0.0", "new", "m.a.0.2")


@pytest.mark.parametrize(
    ("call", "want_message"),
    [
        pytest.param(lambda c: c.worker_joined(StageRef("m", "x", 0), "w", "n", 0), "no stage", id="unknown stage"),
        pytest.param(lambda c: c.worker_joined(REF, "m.a.0.0", "mars", 0), "report it lost", id="another node"),
        pytest.param(lambda c: c.arrive(0, "m", 10, 0), "already being served", id="request twice"),
        pytest.param(lambda c: c.arrive(1, "x", 10, 0), "no module 'x'", id="unknown module"),
    ],
)
def test_bad_input_changes_nothing(call, want_message: str) -> None:  # type: ignore[no-untyped-def]
    d = driver().all_join()
    d.core.arrive(0, "m", 5000, 0)
    before = d.core.signals(0)

    with pytest.raises((ValueError, KeyError), match=want_message):
        call(d.core)
    assert d.core.signals(0) == before


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(SchedulingCore.worker_lost, id="lost"),
        pytest.param(SchedulingCore.worker_draining, id="draining"),
    ],
)
def test_unknown_worker_is_ignored(call) -> None:  # type: ignore[no-untyped-def]
    d = driver().all_join()
    call(d.core, "nobody", 0)
    d.arrive(0, "m", 0, 3000)

    assert d.run().answers == {0: (2000 + 1000, 0)}


class TestFailedBatch:
    def test_runs_again_once(self) -> None:
        d = driver(batch_size=1).all_join()
        d.arrive(0, "m", 0, 10_000)
        d.fail(0, 400)
        d.fail(1, 900)
        d.run()

        assert [at for at, _ in d.dispatches] == [0, 400]
        (_, drop) = d.drops[0]
        assert (drop.reason, drop.detail) == (DropReason.EXECUTION_FAILED, "out of memory")

    def test_does_not_run_again_without_time(self) -> None:
        d = driver(batch_size=1).all_join()
        d.arrive(0, "m", 0, 1300)
        d.fail(0, 400)
        d.run()

        assert d.reasons() == {0: DropReason.EXECUTION_FAILED}
        assert d.drops[0][0] == 400


class TestBatchLostBetweenWorkers:
    def plan(self) -> Driver:
        stages = stage("one", replicas=2), stage("two", replicas=2)
        return Driver(plan_of(module("m").pipeline(1, *stages))).all_join()

    def test_runs_again(self) -> None:
        d = self.plan()
        d.arrive(0, "m", 0, 5000)
        d.lose("m.a.0.0", 700)
        d.lose_batch(0, 700)
        d.run()

        assert [(at, dispatch.path) for at, dispatch in d.dispatches] == [
            (0, ("m.a.0.0", "m.a.1.0")),
            (700, ("m.a.0.1", "m.a.1.0")),
        ]
        assert d.answers == {0: (1900, 1)}

    def test_does_not_run_again_without_time(self) -> None:
        d = self.plan()
        d.arrive(0, "m", 0, 1300)
        d.lose_batch(0, 700)
        d.run()

        assert d.reasons() == {0: DropReason.WORKER_LOST}
        assert d.drops[0][0] == 700

    def test_that_is_unknown_is_ignored(self) -> None:
        d = self.plan()
        d.core.lost(7, 0)
        d.arrive(0, "m", 0, 5000)

        assert d.run().answers == {0: (1200, 0)}


class TestCancelledRequest:
    def test_leaves_the_queue(self) -> None:
        d = driver(batch_size=3).all_join()
        d.arrive(0, "m", 0, 5000)
        d.arrive(1, "m", 0, 6000)
        d.cancel(0, 100)
        d.run()

        assert [dispatch.request_ids for _, dispatch in d.dispatches] == [(1,)]

    def test_in_a_lost_batch_does_not_run_again(self) -> None:
        d = driver(replicas=2).all_join()
        d.arrive(0, "m", 0, 5000)
        d.arrive(1, "m", 0, 5000)
        d.cancel(0, 100)
        d.lose("m.a.0.0", 200)
        d.run()

        assert [dispatch.request_ids for _, dispatch in d.dispatches] == [(0, 1), (1,)]
        assert d.core.signals(d.now).modules["m"].cancelled == 1

    def test_may_use_its_id_again(self) -> None:
        d = driver().all_join()
        d.core.arrive(0, "m", 5000, 0)
        d.core.cancel(0, 0)
        d.core.arrive(0, "m", 5000, 0)

        assert d.core.signals(0).modules["m"].queued == 1
