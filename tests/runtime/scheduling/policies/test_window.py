"""When batches are dispatched, their size and pipeline, and which requests are dropped under overload."""

from itertools import pairwise

import numpy as np
import pytest
from tests.runtime.scheduling.plans import Driver, module, plan_of, stage, worker_name

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, DropReason, StageRef
from partita_runtime.scheduling.policies.registry import POLICIES

REF = StageRef("m", "a", 0)


def one_worker(policy: str = BatchingPolicy.DEFERRED) -> Driver:
    """l(b) = 100 b + 500, batches up to 4."""
    return Driver(plan_of(module("m").pipeline(4, stage("gpu")), policy=policy)).all_join()


@pytest.mark.parametrize(
    ("policy", "arrivals", "want_dispatches"),
    [
        pytest.param(
            BatchingPolicy.DEFERRED, [0], [(5000 - 700, 1)], id="one is dispatched when a second would be too late"
        ),
        pytest.param(
            BatchingPolicy.DEFERRED, [0, 10], [(5000 - 800, 2)], id="two are dispatched when a third would be too late"
        ),
        pytest.param(BatchingPolicy.DEFERRED, [0, 10, 20, 30], [(30, 4)], id="a full batch is dispatched at once"),
        pytest.param(
            BatchingPolicy.DEFERRED, [0, 10, 20, 30, 40], [(30, 4), (5040 - 700, 1)], id="the rest waits for more"
        ),
        pytest.param(BatchingPolicy.EAGER, [0, 10, 20], [(0, 1), (600, 2)], id="eager dispatches at once"),
    ],
)
def test_dispatch_window(policy: BatchingPolicy, arrivals: list[int], want_dispatches: list[tuple[int, int]]) -> None:
    driver = one_worker(policy)
    for number, at in enumerate(arrivals):
        driver.arrive(number, "m", at, at + 5000)
    driver.run()

    assert [(at, len(dispatch.request_ids)) for at, dispatch in driver.dispatches] == want_dispatches


def test_earliest_deadline_first() -> None:
    driver = one_worker()
    for number, deadline in enumerate([9000, 3000, 7000, 5000, 4000]):
        driver.arrive(number, "m", 0, deadline)
    driver.run()

    assert driver.dispatches[0][1].request_ids == (1, 4, 3, 2)


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if policy.meets_deadlines])
def test_request_that_cannot_be_in_time_is_dropped_at_once(policy: str) -> None:
    driver = one_worker(policy)
    driver.arrive(0, "m", 100, 699)
    driver.arrive(1, "m", 100, 700)
    driver.run()

    assert driver.reasons() == {0: DropReason.TOO_LATE}
    assert driver.drops[0][0] == 100
    assert driver.answers[1][0] == 700


def test_delay_from_dispatch_to_start_enters_all_bounds() -> None:
    driver = one_worker()
    driver.core.set_delays(200, 10)
    driver.arrive(0, "m", 0, 5000)
    driver.run()

    ((at, dispatch),) = driver.dispatches
    assert at == 5000 - 700 - 220
    assert dispatch.starts == (at + 210,)


@pytest.mark.parametrize(
    ("queued", "want_first"),
    [
        pytest.param(1, ["a"], id="the first of the plan if none waits"),
        pytest.param(8, ["a", "b"], id="the one that waits least"),
    ],
)
def test_choice_of_pipeline(queued: int, want_first: list[str]) -> None:
    two = module("m").pipeline(4, stage("fast")).pipeline(4, stage("slow", alpha=200))
    driver = Driver(plan_of(two)).all_join()
    for number in range(queued):
        driver.arrive(number, "m", 0, 5000)
    driver.run()

    assert [dispatch.pipeline for _, dispatch in driver.dispatches] == want_first


def test_pipeline_with_the_whole_batch_is_preferred() -> None:
    two = module("m").pipeline(4, stage("slow", alpha=1000)).pipeline(4, stage("fast"))
    driver = Driver(plan_of(two)).all_join()
    for number in range(4):
        driver.arrive(number, "m", 0, 2000)
    driver.run()

    assert [(d.pipeline, len(d.request_ids)) for _, d in driver.dispatches] == [("b", 4)]


def test_path_avoids_a_link_that_is_in_use() -> None:
    """Two workers of stage 1 on separate nodes: the second batch is sent to the node whose downlink is free."""
    plan = plan_of(
        module("m").pipeline(
            1,
            stage("net", replicas=2, alpha=0, beta=1000, output_bytes=1000),
            stage("net", replicas=2, alpha=0, beta=10),
        ),
        bandwidth={"net": 8e6},
    )
    driver = Driver(plan).all_join()
    for number in range(2):
        driver.arrive(number, "m", 0, 10_000)
    driver.run()

    assert [d.path for _, d in driver.dispatches] == [("m.a.0.0", "m.a.1.0"), ("m.a.0.1", "m.a.1.1")]
    assert [d.transfer_starts for _, d in driver.dispatches] == [(1000,), (1000,)]
    assert [d.starts for _, d in driver.dispatches] == [(0, 2000), (0, 2000)]


def test_workers_on_the_same_node_need_no_transfer() -> None:
    plan = plan_of(
        module("m").pipeline(1, stage("net", alpha=0, beta=1000, output_bytes=1000), stage("net", replicas=2)),
        bandwidth={"net": 8e6},
    )
    core = SchedulingCore(plan)
    core.worker_joined(REF, "first", "here", 0)
    core.worker_joined(StageRef("m", "a", 1), "far", "there", 0)
    core.worker_joined(StageRef("m", "a", 1), "near", "here", 0)
    core.arrive(0, "m", 2000, 0)
    (dispatch,) = core.advance(core.next_wakeup() or 0)

    assert isinstance(dispatch, Dispatch)
    assert dispatch.path == ("first", "near")


def test_the_most_urgent_of_several_modules_gets_the_shared_worker() -> None:
    core = SchedulingCore(plan_of(module("m").pipeline(1, stage("gpu")), module("n").pipeline(1, stage("gpu"))))
    for name in ("m", "n"):
        core.worker_joined(StageRef(name, "a", 0), "shared", "node", 0)
    core.arrive(0, "m", 5000, 0)
    core.arrive(1, "n", 3000, 0)
    (first,) = core.advance(0)
    core.completed(0, 0, 600)
    (second,) = core.advance(600)

    assert isinstance(first, Dispatch)
    assert isinstance(second, Dispatch)
    assert (first.request_ids, second.request_ids) == ((1,), (0,))


def staggered(rate: float, seconds: float, policy: BatchingPolicy = BatchingPolicy.DEFERRED) -> Driver:
    """ResNet50 on 8 GPUs (Symphony, Table 2): l(b) = 1.053 b + 5.072 ms, SLO 25 ms, Poisson."""
    gpus = stage("gpu", replicas=8, alpha=1053, beta=5072)
    driver = Driver(plan_of(module("m").pipeline(16, gpus), policy=policy)).all_join()
    gaps = np.random.default_rng(5).exponential(1e6 / rate, size=round(rate * seconds))
    for number, at in enumerate(np.cumsum(gaps).astype(int).tolist()):
        driver.arrive(number, "m", at, at + 25_000)
    return driver.run()


def test_goodput_stays_flat_under_overload() -> None:
    """Bad rate within two points of (o - p) / o (Symphony, section 3.5)."""
    offered, peak = 8000, 5839
    driver = staggered(offered, 3)

    bad = len(driver.drops) / (len(driver.drops) + len(driver.answers))
    assert bad == pytest.approx((offered - peak) / offered, abs=0.02)
    assert driver.core.signals(driver.now).modules["m"].late == 0


def test_eager_goodput_collapses_under_overload() -> None:
    driver = staggered(8000, 1, BatchingPolicy.EAGER)

    assert len(driver.answers) < 0.4 * 8000


def test_workers_idle_from_the_highest_number_down() -> None:
    driver = staggered(2900, 3)

    assert driver.drops == {}
    signals = driver.core.signals(driver.now)
    busy = [signals.workers[worker_name(REF, replica)].busy_micros / driver.now for replica in range(8)]
    assert all(later < earlier + 0.02 for earlier, later in pairwise(busy))
    assert busy[0] > 0.8
    assert busy[7] == 0
    assert 1 - sum(busy) / 8 == pytest.approx(1 - 2900 / 5839, abs=0.05), "idle in proportion to the spare capacity"


def test_oldest_are_dropped_only_when_no_other_worker_is_idle() -> None:
    """A batch shortened by a tight deadline is sent to one worker, the rest to the other."""
    driver = Driver(plan_of(module("m").pipeline(4, stage("gpu", replicas=2)))).all_join()
    driver.arrive(0, "m", 0, 600)
    for number in range(1, 5):
        driver.arrive(number, "m", 0, 2000)
    driver.run()

    assert driver.drops == {}
    assert [d.request_ids for _, d in driver.dispatches] == [(0,), (1, 2, 3, 4)]
