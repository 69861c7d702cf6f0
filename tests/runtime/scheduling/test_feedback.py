"""Actual execution times replace reservations, and change the expected times of the next executions."""

import numpy as np
import pytest
from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.modules.pipeline_state import DEVIATIONS, PipelineState
from partita_runtime.scheduling.queues.arrival_rate import ArrivalRate
from partita_runtime.scheduling.workers.correction import LatencyCorrection


def one_worker(took: int, batch_size: int = 1) -> Driver:
    """One worker that should take 1000 us."""
    plan = plan_of(module("m").pipeline(batch_size, stage("gpu", alpha=0, beta=1000)))
    return Driver(plan, took=lambda _dispatch, _stage, _reserved: took).all_join()


def test_early_end_frees_the_worker_at_once() -> None:
    driver = one_worker(took=400)
    driver.arrive(0, "m", 0, 2000)
    driver.arrive(1, "m", 0, 2000)
    driver.run()

    assert [at for at, _ in driver.dispatches] == [0, 400]


def test_nothing_is_dispatched_behind_an_execution_that_should_have_ended() -> None:
    driver = one_worker(took=1700)
    driver.arrive(0, "m", 0, 10_000)
    driver.arrive(1, "m", 0, 10_000)
    driver.run()

    assert [at for at, _ in driver.dispatches] == [0, 1700]


def test_a_report_may_be_as_late_as_the_control_delay() -> None:
    driver = one_worker(took=1200)
    driver.core.set_delays(300, 0)
    driver.arrive(0, "m", 0, 10_000)
    driver.arrive(1, "m", 0, 10_000)
    driver.run()

    assert [(at, dispatch.starts) for at, dispatch in driver.dispatches] == [(0, (300,)), (1000, (1300,))]


def test_late_stage_delays_the_reservations_behind_it() -> None:
    stages = (stage("one", alpha=0, beta=1000), stage("two", alpha=0, beta=1000))
    driver = Driver(plan_of(module("m").pipeline(1, *stages))).all_join()
    driver.arrive(0, "m", 0, 10_000)
    driver.run(until=500)
    driver.core.completed(0, 0, 1500, took=1000)
    driver.core.arrive(1, "m", 10_000, 1500)
    (dispatch,) = driver.core.advance(1500)

    assert dispatch.starts == (1500, 2500)


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(lambda core: core.completed(7, 0, 100), id="unknown batch"),
        pytest.param(lambda core: core.completed(0, 2, 100), id="unknown stage"),
        pytest.param(lambda core: core.completed(0, -1, 100), id="negative stage"),
        pytest.param(lambda core: core.failed(7, 100, "boom"), id="failure of an unknown batch"),
    ],
)
def test_stale_reports_change_nothing_and_are_counted(report) -> None:  # type: ignore[no-untyped-def]
    driver = one_worker(took=1000)
    driver.arrive(0, "m", 0, 5000)
    driver.run(until=50)
    report(driver.core)
    driver.run()

    assert driver.core.signals(driver.now).stale_reports == 1
    assert driver.answers == {0: (1000, 0)}


def test_second_report_of_a_stage_is_stale() -> None:
    driver = one_worker(took=1000)
    driver.arrive(0, "m", 0, 5000)
    driver.run()
    driver.core.completed(0, 0, 1001)

    signals = driver.core.signals(2000)
    assert signals.stale_reports == 1
    assert signals.modules["m"].in_time == 1


def test_last_report_ends_a_batch_whose_earlier_reports_are_missing() -> None:
    stages = (stage("one", alpha=0, beta=1000), stage("two", alpha=0, beta=1000))
    driver = Driver(plan_of(module("m").pipeline(1, *stages))).all_join()
    driver.core.arrive(0, "m", 10_000, 0)
    driver.core.advance(0)
    driver.core.completed(0, 1, 2000)
    driver.core.completed(0, 0, 2001)

    signals = driver.core.signals(2001)
    assert signals.modules["m"].in_time == 1
    assert signals.stale_reports == 1
    assert [signals.workers[name].busy_micros for name in ("m.a.0.0", "m.a.1.0")] == [1000, 1000]


def test_wrong_profile_is_corrected() -> None:
    driver = one_worker(took=1500)
    for number in range(40):
        driver.arrive(number, "m", number * 2000, number * 2000 + 1400)
    driver.run()

    late = driver.core.signals(driver.now).modules["m"].late
    assert 2 <= late <= 15, "batches that cannot be in time are not dispatched, except for occasional attempts"
    assert set(driver.reasons().values()) == {DropReason.TOO_LATE}
    assert driver.core.signals(driver.now).stages[StageRef("m", "a", 0)].correction > 1.15


def test_one_stall_does_not_stop_the_service() -> None:
    plan = plan_of(module("m").pipeline(1, stage("gpu", alpha=0, beta=1000)))
    driver = Driver(plan, took=lambda dispatch, _stage, _reserved: 50_000 if dispatch.batch_id == 0 else 1000)
    driver.all_join()
    for number in range(30):
        driver.arrive(number, "m", number * 100_000, number * 100_000 + 1100)
    driver.run()

    assert set(range(20, 30)) <= set(driver.answers)
    assert driver.core.signals(driver.now).modules["m"].late == 1


def two_nodes(replicas: int = 1) -> SchedulingCore:
    """A stage of 100 us and one of 1000 us on two nodes; a transfer should take 1000 us."""
    stages = (
        stage("net", alpha=0, beta=100, replicas=replicas, output_bytes=1_000_000),
        stage("net", alpha=0, beta=1000, replicas=replicas),
    )
    plan = plan_of(module("m").pipeline(1, *stages), bandwidth={"net": 8e9}, policy="Eager")
    return Driver(plan, workers_per_node=replicas).all_join().core


def dispatched(core: SchedulingCore, request: int, now: int, slo: int = 100_000) -> Dispatch:
    """The batch of a request that arrives now."""
    core.arrive(request, "m", now + slo, now)
    (dispatch,) = core.advance(now)
    assert isinstance(dispatch, Dispatch)
    return dispatch


def test_late_transfer_delays_the_transfers_behind_it() -> None:
    core = two_nodes()
    dispatched(core, 0, 0)
    core.completed(0, 0, 100)
    assert dispatched(core, 1, 100).transfer_starts == (1100,)
    core.completed(1, 0, 200)
    core.transferred(0, 1, 1500, took=1400)

    assert dispatched(core, 2, 1500).transfer_starts == (2500,)


def test_dispatches_say_from_when_their_links_are_free_and_how_late_they_may_be() -> None:
    core = two_nodes()
    first = dispatched(core, 0, 0, slo=5000)
    core.completed(0, 0, 100)
    second = dispatched(core, 1, 100, slo=5000)

    assert (first.transfer_starts, first.links_free) == ((100,), (0,)), "nothing is reserved before it"
    assert (second.transfer_starts, second.links_free) == ((1100,), (1100,))
    assert (first.slack, second.slack) == (5000 - 2100, 5100 - 3100)


def test_transfers_correct_what_is_reserved_for_the_next_ones() -> None:
    core = two_nodes()
    first = dispatched(core, 0, 0)
    core.completed(0, 0, 100)
    core.transferred(0, 1, 1600, took=1500)
    core.completed(0, 1, 2600)
    second = dispatched(core, 1, 3000)

    assert [d.starts[1] - d.transfer_starts[0] for d in (first, second)] == [1000, 1500]


def test_request_that_the_real_network_would_make_late_is_dropped() -> None:
    core = two_nodes()
    for number in range(20):
        begin = 10_000 * number
        dispatched(core, number, begin)
        core.completed(number, 0, begin + 100)
        core.transferred(number, 1, begin + 5100, took=5000)
        core.completed(number, 1, begin + 6100)
    core.arrive(20, "m", 204_000, 200_000)
    (drop,) = core.advance(200_000)

    assert isinstance(drop, Drop)
    assert drop.reason is DropReason.TOO_LATE


@pytest.mark.parametrize(
    ("batch", "number"),
    [pytest.param(7, 1, id="unknown batch"), pytest.param(0, 0, id="first stage"), pytest.param(0, 2, id="no stage")],
)
def test_stale_transfers_change_nothing_and_are_counted(batch: int, number: int) -> None:
    core = two_nodes()
    dispatched(core, 0, 0)
    core.transferred(batch, number, 2000)

    assert core.signals(2000).stale_reports == 1
    assert core.signals(2000).stages[StageRef("m", "a", 1)].transfers == 0


@pytest.mark.parametrize(
    ("ends", "want_least"),
    [
        pytest.param((5100, 10_100, 15_100), 8e9 / 5.5, id="one after the other"),
        pytest.param((15_098, 15_099, 15_100), 8e9 / 10, id="all at the same time"),
    ],
)
def test_transfers_over_one_link_at_once_do_not_count_as_slow(ends: tuple[int, ...], want_least: float) -> None:
    """Each takes 5000 us alone. What they waited for each other does not count, or as at most as much again."""
    core = two_nodes(replicas=3)
    for number in range(40):
        begin = 100_000 * number
        batches = [dispatched(core, 3 * number + nth, begin).batch_id for nth in range(3)]
        for batch in batches:
            core.completed(batch, 0, begin + 100)
        for batch, end in zip(batches, ends, strict=True):
            core.transferred(batch, 1, begin + end, took=end - 100)
            core.completed(batch, 1, begin + end + 1000)

    assert want_least <= core.signals(0).stages[StageRef("m", "a", 1)].link_bits_per_second <= 8e9 / 4.5


class TestLatencyCorrection:
    def test_right_profile_is_not_corrected(self) -> None:
        correction = LatencyCorrection()

        assert not any(correction.observe(1000, 1000) for _ in range(100))
        assert correction.factor == 1.0

    @pytest.mark.parametrize(
        ("ratio", "want_factor"),
        [
            pytest.param(1.5, 1.5, id="slower"),
            pytest.param(0.6, 0.6, id="faster"),
            pytest.param(10.0, 10.0, id="ten times slower"),
            pytest.param(0.1, 0.1, id="ten times faster"),
            pytest.param(100.0, 16.0, id="bounded above"),
            pytest.param(0.01, 1 / 16, id="bounded below"),
        ],
    )
    def test_factor_converges(self, ratio: float, want_factor: float) -> None:
        correction = LatencyCorrection()
        for _ in range(200):
            correction.observe(1000, round(1000 * ratio))

        assert correction.factor == pytest.approx(want_factor, rel=0.02, abs=0.005)
        assert correction.actual_micros == 200 * round(1000 * ratio)

    def test_factor_is_the_mean_and_spread_covers_most_of_the_rest(self) -> None:
        correction = LatencyCorrection()
        generator = np.random.default_rng(7)
        covered, factors = 0, []
        for actual in generator.normal(1000, 50, size=2000).round().astype(int).tolist():
            covered += actual <= 1000 * (correction.factor + DEVIATIONS * correction.spread)
            factors.append(correction.factor)
            correction.observe(1000, actual)

        assert covered >= 0.97 * 2000
        assert np.mean(factors) == pytest.approx(1, abs=0.01)
        assert correction.spread < 0.1


def test_margin_is_less_than_that_of_every_stage_together() -> None:
    """A delay of one stage can be compensated by another one: variances add up, not deviations."""
    pipeline = PipelineState("m", module("m").pipeline(2, stage("a"), stage("b")).build().pipelines[0], {})
    for ran in (900, 1100) * 50:
        for number, planned in enumerate(pipeline.stages):
            pipeline.observe(number, 2, round(planned.spec.latency_micros[1] * ran / 1000))

    spreads = [DEVIATIONS * s.correction.spread * s.spec.latency_micros[1] for s in pipeline.stages]
    expected = [s.correction.factor * s.spec.latency_micros[1] for s in pipeline.stages]
    assert max(spreads) < pipeline.margin[1] < 0.8 * sum(spreads)
    assert pipeline.total[1] == pytest.approx(sum(expected) + pipeline.margin[1], abs=2)


class TestArrivalRate:
    def test_steady_rate_is_measured_as_steady(self) -> None:
        rate, now = ArrivalRate(), 0.0
        generator = np.random.default_rng(3)
        seen = []
        for number, gap in enumerate(generator.exponential(200, size=60_000)):
            now += gap
            rate.count(int(now))
            if number > 20_000 and number % 50 == 0:
                seen.append(rate.per_micro(int(now)))

        assert min(seen) == pytest.approx(1 / 200, rel=0.03)
        assert max(seen) == pytest.approx(1 / 200, rel=0.03)

    def test_change_is_noticed_within_half_a_second(self) -> None:
        rate = ArrivalRate()
        for now in range(0, 10_000_000, 400):
            rate.count(now)
        assert rate.per_micro(10_000_000) == pytest.approx(1 / 400, rel=0.01)
        for now in range(10_000_000, 10_500_000, 100):
            rate.count(now)
            rate.per_micro(now)

        assert rate.per_micro(10_500_000) == pytest.approx(1 / 100, rel=0.25)

    def test_no_requests_are_a_rate_of_0(self) -> None:
        rate = ArrivalRate()
        assert rate.per_micro(1000) == 0
        rate.count(1000)
        assert rate.per_micro(1000) == 0
