"""Differences between the batching policies: when, how much and where they dispatch."""

import pytest
from tests.runtime.scheduling.plans import Driver, module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, DropReason, StageRef

ONE = module("m").pipeline(4, stage("gpu"))
"""l(b) = 100 b + 500, batches up to 4."""
TWO = module("m").pipeline(4, stage("gpu", replicas=2))


@pytest.mark.parametrize(
    ("policy", "arrivals", "want_dispatches"),
    [
        pytest.param("Timeout:20", [0], [(1000, 1)], id="timeout: after its share of the SLO"),
        pytest.param("Timeout:20", [0, 10, 20, 30], [(30, 4)], id="timeout: a full batch is dispatched at once"),
        pytest.param("Timeout:95", [0], [(5000 - 600, 1)], id="timeout: not after its latest time"),
        pytest.param("Clockwork:0", [0, 10, 20], [(0, 1), (600, 2)], id="clockwork: eager if it commits nothing"),
        pytest.param("Clockwork:1", [0, 10, 20], [(0, 1), (10, 1), (200, 1)], id="clockwork: commits work ahead"),
        pytest.param("Nexus", [0, 10, 20], [(0, 1), (600, 2)], id="nexus: runs all waiting requests"),
        pytest.param(
            "Shepherd", [0, 10, 20], [(0, 1), (600, 2)], id="shepherd: a batch twice as large does not preempt"
        ),
        pytest.param(
            "Shepherd",
            [0, 10, 20, 30],
            [(0, 1), (30, 3), (830, 1)],
            id="shepherd: a batch three times as large preempts",
        ),
        pytest.param("ServeBatch:1", [0, 10, 2000], [(1000, 2), (3000, 1)], id="serve: waits for its timeout"),
        pytest.param("ServeBatch:1", [0, 0, 0, 0, 5], [(0, 4), (1005, 1)], id="serve: closes batches while busy"),
        pytest.param("Fifs", [0, 10, 20], [(0, 1), (600, 1), (1200, 1)], id="fifs: each query by itself"),
        pytest.param("Fifs", [0, 0], [(0, 1), (600, 1)], id="fifs: also of those that arrive together"),
        pytest.param("Elsa", [0, 10, 20], [(0, 1), (10, 1), (20, 1)], id="elsa: placed on arrival"),
        pytest.param("Elsa", [0, 0], [(0, 1), (0, 1)], id="elsa: also of those that arrive together"),
    ],
)
def test_when_and_how_much(policy: str, arrivals: list[int], want_dispatches: list[tuple[int, int]]) -> None:
    driver = Driver(plan_of(ONE, policy=policy)).all_join()
    for number, at in enumerate(arrivals):
        driver.arrive(number, "m", at, at + 5000)
    driver.run()

    assert [(at, len(dispatch.request_ids)) for at, dispatch in driver.dispatches] == want_dispatches


def test_preempted_requests_are_served_later() -> None:
    driver = Driver(plan_of(ONE, policy="Shepherd")).all_join()
    for number, at in enumerate([0, 10, 20, 30]):
        driver.arrive(number, "m", at, at + 5000)
    driver.run()

    assert [dispatch.preempts for _, dispatch in driver.dispatches] == [None, 0, None]
    assert driver.answers[0] == (830 + 600, 2)
    assert driver.drops == {}


def test_preempted_requests_without_time_left_are_dropped() -> None:
    driver = Driver(plan_of(ONE, policy="Shepherd")).all_join()
    driver.arrive(0, "m", 0, 610)
    for number in (1, 2, 3):
        driver.arrive(number, "m", 20, 5000)
    driver.run()

    assert driver.reasons() == {0: DropReason.OVERLOAD}


def test_nexus_binds_requests_to_workers_in_turn() -> None:
    """The second worker is idle, but the third request waits for the first one: it was bound to it on arrival."""
    driver = Driver(plan_of(TWO, policy="Nexus")).all_join()
    for number, at in enumerate([0, 5, 10]):
        driver.arrive(number, "m", at, at + 5000)
    driver.run()

    assert [(at, d.path, d.request_ids) for at, d in driver.dispatches] == [
        (0, ("m.a.0.0",), (0,)),
        (5, ("m.a.0.1",), (1,)),
        (600, ("m.a.0.0",), (2,)),
    ]


@pytest.mark.parametrize(
    ("policy", "deadline"),
    [
        pytest.param("Nexus", 1300, id="Nexus drops requests that make its window late"),
        pytest.param("Clockwork:0", 1250, id="Clockwork drops requests that prevent a larger batch"),
    ],
)
def test_requests_that_would_make_the_batch_smaller_are_dropped(policy: str, deadline: int) -> None:
    driver = Driver(plan_of(ONE, policy=policy)).all_join()
    driver.arrive(0, "m", 0, 5000)
    driver.arrive(1, "m", 10, deadline)
    for number in (2, 3, 4):
        driver.arrive(number, "m", 20, 5000)
    driver.run()

    assert driver.reasons() == {1: DropReason.OVERLOAD}
    assert [d.request_ids for _, d in driver.dispatches] == [(0,), (2, 3, 4)]


def test_clockwork_plans_to_end_before_the_deadline() -> None:
    driver = Driver(plan_of(module("m").pipeline(4, stage("gpu", beta=6500)), policy="Clockwork:0")).all_join()
    driver.arrive(0, "m", 0, 11_000)
    driver.arrive(1, "m", 20_000, 32_000)
    driver.run()

    assert driver.reasons() == {0: DropReason.TOO_LATE}


def test_requests_of_a_lost_worker_are_bound_to_another() -> None:
    driver = Driver(plan_of(TWO, policy="Nexus")).all_join()
    for number, at in enumerate([0, 5, 10]):
        driver.arrive(number, "m", at, at + 5000)
    driver.lose("m.a.0.0", 100)
    driver.run()

    assert driver.drops == {}
    assert {d.path for at, d in driver.dispatches if at >= 100} == {("m.a.0.1",)}


@pytest.mark.parametrize(
    ("policy", "slack", "want_pipelines"),
    [
        pytest.param("Elsa", 4000, ["b"], id="elsa: the smallest that is in time"),
        pytest.param("Elsa", 1000, ["a"], id="elsa: a larger one if necessary"),
        pytest.param("Elsa", 100, ["a"], id="elsa: the fastest if none is in time"),
        pytest.param("Fifs", 1000, ["b"], id="fifs: the one that has been idle longest"),
    ],
)
def test_choice_among_unequal_slices(policy: str, slack: int, want_pipelines: list[str]) -> None:
    unequal = module("m").pipeline(4, stage("large")).pipeline(4, stage("small", alpha=400, beta=2000))
    driver = Driver(plan_of(unequal, policy=policy)).all_join()
    driver.arrive(0, "m", 0, 600)
    driver.run()
    driver.dispatches.clear()
    driver.arrive(1, "m", 5000, 5000 + slack)
    driver.run()

    assert [dispatch.pipeline for _, dispatch in driver.dispatches] == want_pipelines


def test_elsa_counts_the_wait_for_a_slice() -> None:
    """Two queries at the small slice would be late, so the second goes to the large one."""
    unequal = module("m").pipeline(4, stage("large")).pipeline(4, stage("small", alpha=400, beta=2000))
    driver = Driver(plan_of(unequal, policy="Elsa")).all_join()
    for number, at in enumerate([0, 10]):
        driver.arrive(number, "m", at, at + 3000)
    driver.run()

    assert [dispatch.pipeline for _, dispatch in driver.dispatches] == ["b", "a"]


@pytest.mark.parametrize(
    ("policy", "want_second"),
    [
        pytest.param("Elsa", "b", id="as estimated"),
        pytest.param("Elsa:1.2", "b", id="alpha that leaves time"),
        pytest.param("Elsa:1.3", "a", id="alpha that leaves none"),
        pytest.param("Elsa:1:1.4", "b", id="beta weights the execution, not the wait"),
        pytest.param("Elsa:1:1.6", "a", id="beta that leaves none"),
        pytest.param("Elsa:1.2:1.2", "a", id="alpha weights both"),
    ],
)
def test_elsa_weights_its_estimate(policy: str, want_second: str) -> None:
    """The second query waits 2400 us for the small slice, executes 2400 us there, and has 6000 us."""
    unequal = module("m").pipeline(4, stage("large")).pipeline(4, stage("small", alpha=400, beta=2000))
    driver = Driver(plan_of(unequal, policy=policy)).all_join()
    for number, deadline in enumerate([5000, 6000]):
        driver.arrive(number, "m", 0, deadline)
    driver.run()

    assert [dispatch.pipeline for _, dispatch in driver.dispatches] == ["b", want_second]


@pytest.mark.parametrize("policy", ["Elsa", "Fifs"])
def test_requests_of_one_call_are_a_query(policy: str) -> None:
    """Two calls at the same time, with the same deadline and in turn: as from one batch upstream."""
    driver = Driver(plan_of(ONE, policy=policy)).all_join()
    for number, call in enumerate([7, 8, 7, 8, 7]):
        driver.arrive(number, "m", 0, 5000, call)
    driver.run()

    assert [dispatch.request_ids for _, dispatch in driver.dispatches] == [(0, 2, 4), (1, 3)]


def test_a_call_that_waited_for_workers_is_one_query_again() -> None:
    """Its worker is lost while it waits there, with two requests that came later; all of them wait for another."""
    driver = Driver(plan_of(ONE, policy="Elsa")).all_join()
    for number, (at, call) in enumerate([(0, 7), (0, 7), (100, 8), (200, 7)]):
        driver.arrive(number, "m", at, 5000, call)
    driver.lose("m.a.0.0", 300)
    driver.at(400, lambda: driver.join(StageRef("m", "a", 0), 0))
    driver.run()

    assert [(at, d.request_ids) for at, d in driver.dispatches if at >= 300] == [(400, (0, 1, 3)), (400, (2,))]


def test_a_call_larger_than_every_batch_is_split() -> None:
    driver = Driver(plan_of(ONE, policy="Elsa")).all_join()
    for number in range(6):
        driver.arrive(number, "m", 0, 5000, call=7)
    driver.run()

    assert [dispatch.request_ids for _, dispatch in driver.dispatches] == [(0, 1, 2, 3), (4, 5)]


@pytest.mark.parametrize(("policy", "want_first"), [("Deferred", 2), ("Shepherd", 0)])
def test_which_of_two_models_gets_the_free_worker(policy: str, want_first: int) -> None:
    """Partita's policy prefers the most urgent batch, Shepherd the largest."""
    core = SchedulingCore(
        plan_of(module("m").pipeline(2, stage("gpu")), module("n").pipeline(1, stage("gpu")), policy=policy)
    )
    for name in ("m", "n"):
        core.worker_joined(StageRef(name, "a", 0), "shared", "node", 0)
    core.arrive(0, "m", 5000, 0)
    core.arrive(1, "m", 5000, 0)
    core.arrive(2, "n", 3000, 0)
    (first,) = core.advance(0)

    assert isinstance(first, Dispatch)
    assert first.request_ids[0] == want_first


@pytest.mark.parametrize(
    ("policy", "want_message"),
    [
        pytest.param("Hasty", "no batching policy 'Hasty'; choose one of Deferred", id="unknown"),
        pytest.param("Eager:5", "Eager has no parameter", id="parameter of a policy without one"),
        pytest.param("Timeout:soon", "such as Timeout:40", id="parameter that is not a number"),
        pytest.param("Timeout:-1", "such as Timeout:40", id="parameter below 0"),
        pytest.param("Elsa:1:", "Elsa takes alpha and beta of its rule", id="parameter without text"),
        pytest.param("Elsa:1:1:1", "such as Elsa:1.2:1", id="more parameters than the policy has"),
    ],
)
def test_bad_names_are_refused(policy: str, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        SchedulingCore(plan_of(ONE, policy=policy))


def test_plan_with_a_bad_policy_changes_nothing() -> None:
    driver = Driver(plan_of(ONE)).all_join()
    driver.arrive(0, "m", 0, 5000)
    driver.run(until=0)
    with pytest.raises(ValueError, match="no batching policy"):
        driver.core.switch_plan(plan_of(ONE, name="next", policy="Hasty"), 10)
    driver.run()

    assert driver.core.signals(driver.now).plan == "plan"
    assert set(driver.answers) == {0}
