"""One plan's workers shared by frontends with different clocks and ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.serving.central.messages import (
    BatchDelays,
    BatchDispatched,
    BatchFailed,
    FrontendEvents,
    Register,
    StageCompleted,
    SubRequestArrived,
    WorkerBusy,
    WorkerJoined,
)
from partita_runtime.serving.central.shared_plan import SharedPlan
from partita_runtime.serving.transport.clock_offset import ClockOffset

REF = StageRef("m", "a", 0)
PLAN = plan_of(module("m").pipeline(2, stage("gpu", alpha=0, beta=1000)))
"""Batches of two at most, 1000 us each."""
HOURS = 7_200_000_000


@dataclass
class Frontends:
    """Frontends of a plan, each with a clock ahead of the coordinator's. Times here are the coordinator's."""

    plan: SharedPlan = field(default_factory=lambda: SharedPlan(PLAN, 0))
    ahead: dict[str, int] = field(default_factory=dict)
    dispatched: list[tuple[str, int, BatchDispatched]] = field(default_factory=list)
    """Frontend, number, and the batch with its times on the coordinator's clock."""
    dropped: dict[tuple[str, int], DropReason] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def enter(self, name: str, ahead: int = HOURS, workers: Sequence[str] = ("w",), now: int = 0, **told: Any) -> None:
        self.ahead[name] = ahead
        self.numbers[name] = 100
        self.plan.register(Register(frontend=name, plan=self.plan.plan, next_batch=100), now)
        self.tell(
            name, now, delays=BatchDelays(), workers_joined=tuple(WorkerJoined(*REF, w, "n") for w in workers), **told
        )

    def tell(self, name: str, now: int, **told: Any) -> None:
        self.plan.handle(name, FrontendEvents(sent=now + self.ahead[name], **told), now)

    def arrive(self, name: str, number: int, now: int, deadline: int, call: int = 0) -> None:
        ahead = self.ahead[name]
        self.tell(name, now, arrived=(SubRequestArrived(number, "m", deadline + ahead, now + ahead, call),))

    def complete(self, name: str, batch: int, now: int) -> None:
        self.tell(name, now, completed=(StageCompleted(batch, 0, now + self.ahead[name], None),))

    def advance(self, now: int) -> None:
        for name, decisions in self.plan.advance(now).items():
            ahead = self.ahead[name]
            assert decisions.due == now + ahead
            for batch in decisions.batches:
                starts = tuple(start - ahead for start in batch.starts)
                times = {"starts": starts, "finish": batch.finish - ahead, "deadline": batch.deadline - ahead}
                self.dispatched.append((name, self.numbers[name], batch.model_copy(update=times)))
                self.numbers[name] += 1
            self.dropped |= {(name, drop.id): drop.reason for drop in decisions.drops}

    def run(self, until: int) -> None:
        """Let time pass, with batches that take the profiled time."""
        over: set[tuple[str, int]] = set()
        while True:
            ends = [(g.finish, name, batch) for name, batch, g in self.dispatched if (name, batch) not in over]
            wakeup = self.plan.next_wakeup()
            now = min([at for at, _, _ in ends] + ([] if wakeup is None else [wakeup]), default=until)
            if now >= until:
                return
            for at, name, batch in ends:
                if at <= now:
                    over.add((name, batch))
                    if name in self.plan:
                        self.complete(name, batch, now)
            self.advance(now)

    @property
    def starts(self) -> list[tuple[str, int]]:
        return [(name, batch.starts[0]) for name, _, batch in self.dispatched]


def test_a_worker_runs_batches_of_both_frontends_one_after_the_other() -> None:
    frontends = Frontends()
    frontends.enter("one")
    frontends.enter("other", ahead=0)
    for name in ("one", "other"):
        frontends.arrive(name, 1, 0, deadline=5000)
        frontends.arrive(name, 2, 0, deadline=5000)
    frontends.run(20_000)
    assert frontends.starts == [("one", 0), ("other", 1000)]
    assert [(number, batch.request_ids, batch.deadline) for _, number, batch in frontends.dispatched] == [
        (100, (1, 2), 5000)
    ] * 2
    counted = frontends.plan.signals(20_000)
    assert (counted.modules["m"].in_time, counted.pipelines["m", "a"].batch_sizes) == (4, {2: 2})
    assert (counted.stages[REF].workers, counted.workers["w"].busy_micros) == (("w",), 2000)


def test_what_is_reserved_is_on_the_clock_of_the_frontend() -> None:
    stages = stage("gpu", alpha=0, beta=1000, output_bytes=1000), stage("gpu", alpha=0, beta=100)
    frontends = Frontends(SharedPlan(plan_of(module("m").pipeline(1, *stages), bandwidth={"gpu": 8e6}), 0))
    frontends.enter("one", workers=["v", "w"])
    frontends.tell("one", 0, workers_joined=(WorkerJoined("m", "a", 1, "x", "node of x"),))
    for number in (1, 2):
        frontends.arrive("one", number, 0, deadline=5000)
    (decided,) = frontends.plan.advance(0).values()
    ahead = frontends.ahead["one"]
    times = [(*batch.starts, *batch.transfer_starts, *batch.links_free) for batch in decided.batches]
    assert [[time - ahead for time in each] for each in times] == [[0, 2000, 1000, 0], [0, 3000, 2000, 2000]]
    assert [batch.slack for batch in decided.batches] == [5000 - 2100, 5000 - 3100]


def test_calls_keep_apart_where_the_policy_does_not_merge_them() -> None:
    """Frontends number their calls independently, so both have a call 7 and a call 8."""
    elsa = PLAN.model_copy(update={"policy": "Elsa"})
    frontends = Frontends(SharedPlan(elsa, 0))
    frontends.enter("one")
    frontends.enter("other", ahead=0)
    for name in ("one", "other"):
        for number, call in enumerate([7, 8, 7, 8]):
            frontends.arrive(name, number, 0, 9000, call)
    frontends.run(20_000)
    batches = [(name, batch.request_ids) for name, _, batch in frontends.dispatched]
    assert sorted(batches) == [("one", (0, 2)), ("one", (1, 3)), ("other", (0, 2)), ("other", (1, 3))]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3000), st.integers(500, 9000)), max_size=40),
    st.integers(1, 3),
)
def test_no_worker_is_dispatched_twice_at_once_and_every_request_ends_once(
    arrivals: list[tuple[str, int, int]], workers: int
) -> None:
    frontends = Frontends()
    for name in "abc":
        frontends.enter(name, workers=[f"w{k}" for k in range(workers)])
    now = 0
    for number, (name, gap, slack) in enumerate(arrivals):
        frontends.run(now + gap)
        now += gap
        frontends.arrive(name, number, now, now + slack)
    frontends.run(now + 1_000_000)
    for worker in {batch.path[0] for _, _, batch in frontends.dispatched}:
        busy = sorted((g.starts[0], g.finish) for _, _, g in frontends.dispatched if g.path[0] == worker)
        assert all(end <= start for (_, end), (start, _) in pairwise(busy))
    served = [(name, request) for name, _, batch in frontends.dispatched for request in batch.request_ids]
    assert sorted([*served, *frontends.dropped]) == sorted(
        (name, number) for number, (name, _, _) in enumerate(arrivals)
    )


def test_reservations_of_a_lost_frontend_end_as_planned_and_its_requests_are_removed() -> None:
    frontends = Frontends()
    frontends.enter("one")
    frontends.enter("other")
    for number in range(4):
        frontends.arrive("one", number, 0, deadline=9000)
    frontends.advance(0)
    frontends.arrive("other", 1, 100, deadline=2000)
    frontends.plan.leave("one", 200)
    frontends.run(20_000)
    assert frontends.starts == [("one", 0), ("other", 1000)]
    assert len(frontends.plan) == 1
    counted = frontends.plan.signals(20_000).modules["m"]
    assert (counted.arrived, counted.cancelled, counted.in_time) == (5, 4, 1)


def test_a_new_coordinator_does_not_dispatch_to_workers_that_are_busy_for_the_old_one() -> None:
    frontends = Frontends()
    frontends.enter("one", now=0, workers_busy=(WorkerBusy("w", 700 + HOURS), WorkerBusy("unknown", 900)))
    frontends.enter("other", ahead=0, now=0, workers_busy=(WorkerBusy("w", 1500),))
    frontends.arrive("one", 1, 0, deadline=2500)
    frontends.run(20_000)
    assert frontends.starts == [("one", 1500)]


def test_a_worker_that_one_frontend_cannot_reach_serves_the_other() -> None:
    frontends = Frontends()
    for name in ("one", "other"):
        frontends.enter(name)
    frontends.tell("one", 0, workers_lost=("w",))
    for name in ("one", "other"):
        frontends.arrive(name, 1, 0, deadline=5000)
    frontends.run(20_000)
    assert [name for name, _ in frontends.starts] == ["other"]
    assert frontends.dropped == {("one", 1): DropReason.NO_WORKERS}
    frontends.tell("one", 20_000, workers_joined=(WorkerJoined(*REF, "w", "n"),))
    frontends.arrive("one", 2, 20_000, deadline=25_000)
    frontends.run(40_000)
    assert [name for name, _ in frontends.starts] == ["other", "one"]


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_batch_that_was_not_run_is_dispatched_again(how: str) -> None:
    frontends = Frontends()
    frontends.enter("one")
    frontends.arrive("one", 1, 0, deadline=9000)
    frontends.arrive("one", 2, 0, deadline=9000)
    frontends.advance(0)
    frontends.tell("one", 300, cancelled=(2,))
    frontends.tell("one", 300, **{how: (BatchFailed(100, "why"),) if how == "failed" else (100,)})
    frontends.run(20_000)
    assert [batch.request_ids for _, _, batch in frontends.dispatched] == [(1, 2), (1,)]


def test_a_draining_worker_gets_no_batches_from_any_frontend() -> None:
    frontends = Frontends()
    for name in ("one", "other"):
        frontends.enter(name)
    frontends.tell("one", 0, workers_draining=("w",))
    frontends.arrive("other", 1, 0, deadline=5000)
    frontends.run(20_000)
    assert frontends.dropped == {("other", 1): DropReason.NO_WORKERS}


def test_offset_of_a_clock() -> None:
    clock = ClockOffset()
    assert clock.micros == 0
    for sent, received in ((1000, 51_300), (2000, 52_100), (3000, 53_900)):
        clock.observe(sent, received)
    assert clock.micros == 50_100
    clock.observe(20_002_000, 20_053_000)  # it drifts, and old measurements expire
    clock.observe(40_002_000, 40_053_500)
    assert clock.micros == 51_000
