"""Symphony's example (section 3.3): 3 GPUs, l(b) = b + 5, SLO 12, a request every 0.75; one unit is 1000 us here."""

from itertools import pairwise

from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.plan import SchedulingPlan

UNIT = 1000
GAP = 750
SLO = 12 * UNIT


def plan(policy: BatchingPolicy) -> SchedulingPlan:
    gpus = stage("gpu", replicas=3, alpha=UNIT, beta=5 * UNIT)
    return plan_of(module("m").pipeline(7, gpus), policy=policy)


def run(missing: range = range(0), eager_from: int | None = None) -> Driver:
    driver = Driver(plan(BatchingPolicy.DEFERRED)).all_join()
    if eager_from is not None:
        driver.at(eager_from, lambda: driver.core.switch_plan(plan(BatchingPolicy.EAGER), driver.now))
    for number in range(1, 81):
        if number not in missing:
            at = GAP * (number - 1)
            driver.arrive(number, "m", at, at + SLO)
    return driver.run()


def test_deferred_batches_are_staggered() -> None:
    driver = run()

    assert driver.drops == {}
    assert driver.dispatches[0][0] == 2250, "the first batch is dispatched when R4 arrives, after its frontrun of 2"
    assert driver.sizes() == [4] * 20
    assert {later - earlier for (earlier, _), (later, _) in pairwise(driver.dispatches[:19])} == {3000}
    assert [dispatch.path for _, dispatch in driver.dispatches[:6]] == [(f"m.a.0.{i}",) for i in (0, 1, 2, 0, 1, 2)]


def test_deferred_batches_are_staggered_again_after_missing_requests() -> None:
    driver = run(missing=range(13, 16))

    assert driver.drops == {}
    assert driver.sizes()[:18] == [4] * 18


def test_eager_batching_deteriorates_after_missing_requests() -> None:
    driver = run(missing=range(13, 16), eager_from=11_000)

    eager = [dispatch for at, dispatch in driver.dispatches if at >= 11_000]
    assert [dispatch.request_ids[0] for dispatch in eager[:4]] == [16, 17, 21, 25]
    assert [len(dispatch.request_ids) for dispatch in eager[:5]] == [1, 4, 4, 1, 2]
    assert sorted(driver.drops)[:3] == [35, 37, 38]


def test_all_answers_are_in_time() -> None:
    driver = run(missing=range(13, 16), eager_from=11_000)

    assert all(at <= GAP * (request - 1) + SLO for request, (at, _) in driver.answers.items())
    assert len(driver.answers) + len(driver.drops) == 77
