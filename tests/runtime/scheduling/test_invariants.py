"""Properties for every plan, load and failure."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.scheduling.plans import Driver, module, plan_of, refs, stage, worker_name

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.events import Dispatch, DropReason, StageRef
from partita_runtime.scheduling.modules.pipeline_state import transfer_micros
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.registry import POLICIES

stages = st.builds(
    stage,
    st.sampled_from(["fast", "slow", "free"]),
    replicas=st.integers(1, 4),
    alpha=st.integers(0, 400),
    beta=st.integers(1, 2000),
    output_bytes=st.integers(0, 100),
)
pipelines = st.tuples(st.integers(1, 6), st.lists(stages, min_size=1, max_size=3))
modules = st.lists(pipelines, min_size=1, max_size=2)


@st.composite
def plans(draw: st.DrawFn) -> SchedulingPlan:
    built = []
    for name in ("m", "n")[: draw(st.integers(1, 2))]:
        builder = module(name)
        for batch_size, stage_list in draw(modules):
            builder = builder.pipeline(batch_size, *stage_list)
        built.append(builder)
    return plan_of(*built, bandwidth={"fast": 8e6, "slow": 2e6})


@dataclass(frozen=True)
class Story:
    """What happens to a plan."""

    plan: SchedulingPlan
    arrivals: list[tuple[int, int, int]]
    """Gap, slack until the deadline, number of the module."""
    workers_per_node: int = 1
    cancels: list[tuple[int, int]] = field(default_factory=list)
    losses: list[tuple[int, int, int | None]] = field(default_factory=list)
    """Time of the failure, worker, time of its return."""
    failures: list[tuple[int, int]] = field(default_factory=list)
    delays: tuple[int, int] = (0, 0)
    percent: tuple[int, ...] = (100,)
    """Actual execution times, in turn, as a percentage of the profiled ones."""

    def under(self, policy: str) -> "Story":
        """The same with another batching policy."""
        return replace(self, plan=self.plan.model_copy(update={"policy": policy}))

    def play(self) -> Driver:
        def took(dispatch: Dispatch, number: int, profiled: int) -> int:
            return max(1, profiled * self.percent[(dispatch.batch_id + number) % len(self.percent)] // 100)

        driver = Driver(self.plan, self.workers_per_node, took).all_join()
        driver.core.set_delays(*self.delays)
        names = [m.name for m in self.plan.modules]
        at = 0
        for request_id, (gap, slack, number) in enumerate(self.arrivals):
            at += gap
            driver.arrive(request_id, names[number % len(names)], at, at + slack)
        for when, request_id in self.cancels:
            driver.cancel(request_id, when)
        replicas = [(ref, replica) for ref, spec in refs(self.plan) for replica in range(spec.replicas)]
        for when, number, back in self.losses:
            ref, replica = replicas[number % len(replicas)]
            driver.lose(worker_name(ref, replica), when)
            if back is not None:
                driver.at(when + back, lambda ref=ref, replica=replica: driver.join(ref, replica))
        for when, batch_id in self.failures:
            driver.fail(batch_id, when)
        return driver.run()


arrivals = st.lists(st.tuples(st.integers(0, 800), st.integers(0, 12_000), st.integers(0, 1)), min_size=1, max_size=50)
PROMISING = [name for name, policy in POLICIES.items() if policy.meets_deadlines]
COMMITTING = {"Clockwork", "Elsa", "ServeBatch"}
"""Policies that commit batches to workers that are still busy."""
moments = st.integers(0, 20_000)
calm_stories = st.builds(
    Story, plans(), arrivals, st.integers(1, 3), delays=st.tuples(st.integers(0, 500), st.integers(0, 50))
)
stories = st.builds(
    Story,
    plans(),
    arrivals,
    st.integers(1, 3),
    cancels=st.lists(st.tuples(moments, st.integers(0, 50)), max_size=8),
    losses=st.lists(st.tuples(moments, st.integers(0, 40), st.none() | st.integers(1, 5000)), max_size=6),
    failures=st.lists(st.tuples(moments, st.integers(0, 20)), max_size=4),
    delays=st.tuples(st.integers(0, 500), st.integers(0, 50)),
    percent=st.lists(st.integers(20, 400), min_size=1, max_size=4).map(tuple),
)


@pytest.mark.parametrize("policy", POLICIES)
@given(stories)
@settings(max_examples=25, deadline=None)
def test_every_request_ends_exactly_once(policy: str, story: Story) -> None:
    driver = story.under(policy).play()

    for request_id in range(len(story.arrivals)):
        ends = [request_id in ends for ends in (driver.answers, driver.drops, driver.cancelled)]
        assert sum(ends) == 1, f"request {request_id}: answered, dropped, cancelled = {ends}"
    assert driver.core.next_wakeup() is None
    counted = driver.core.signals(driver.now).modules.values()
    assert sum(m.arrived for m in counted) == len(story.arrivals)
    assert sum(m.in_time + m.late for m in counted) == len(driver.answers)
    assert sum(sum(m.dropped.values()) for m in counted) == len(driver.drops)
    assert sum(m.cancelled for m in counted) == len(driver.cancelled)
    assert sum(m.queued for m in counted) == 0


@pytest.mark.parametrize("policy", POLICIES)
@given(stories)
@settings(max_examples=15, deadline=None)
def test_batches_never_exceed_the_plan(policy: str, story: Story) -> None:
    planned = {(m.name, p.name): p for m in story.plan.modules for p in m.pipelines}
    for _, dispatch in story.under(policy).play().dispatches:
        pipeline = planned[dispatch.module, dispatch.pipeline]
        assert 1 <= len(dispatch.request_ids) <= pipeline.batch_size
        assert len(dispatch.path) == len(dispatch.starts) == len(pipeline.stages)


@pytest.mark.parametrize("policy", POLICIES)
@given(stories)
@settings(max_examples=10, deadline=None)
def test_same_inputs_give_the_same_decisions(policy: str, story: Story) -> None:
    first, second = story.under(policy).play(), story.under(policy).play()

    assert first.dispatches == second.dispatches
    assert first.drops == second.drops


@pytest.mark.parametrize("policy", PROMISING)
@given(calm_stories)
@settings(max_examples=25, deadline=None)
def test_dispatched_batches_meet_their_deadline_if_the_profile_is_right(policy: str, story: Story) -> None:
    driver = story.under(policy).play()

    for at, dispatch in driver.dispatches:
        ready = at + story.delays[0] + story.delays[1] * len(dispatch.request_ids)
        assert dispatch.starts[0] >= ready
        assert dispatch.finish <= dispatch.deadline
        if dispatch.batch_id not in driver.ended_early:
            assert {driver.answers[request][0] for request in dispatch.request_ids} == {dispatch.finish}
    assert all(m.late == 0 for m in driver.core.signals(driver.now).modules.values())


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - COMMITTING))
@given(calm_stories)
@settings(max_examples=15, deadline=None)
def test_batches_are_dispatched_when_they_can_start(policy: str, story: Story) -> None:
    for at, dispatch in story.under(policy).play().dispatches:
        assert dispatch.starts[0] == at + story.delays[0] + story.delays[1] * len(dispatch.request_ids)


@pytest.mark.parametrize("policy", POLICIES)
@given(calm_stories)
@settings(max_examples=25, deadline=None)
def test_no_worker_and_no_link_is_reserved_twice_at_once(policy: str, story: Story) -> None:
    driver = story.under(policy).play()

    reserved: dict[str, list[tuple[int, int]]] = {}
    transfers = {
        StageRef(m.name, p.name, k): transfer_micros(p, k, story.plan.bandwidth)
        for m in story.plan.modules
        for p in m.pipelines
        for k in range(len(p.stages) - 1)
    }
    for _, dispatch in driver.dispatches:
        for number, (worker, start) in enumerate(zip(dispatch.path, dispatch.starts, strict=True)):
            end = start + driver.latency(dispatch, number)
            preempted = driver.ended_early.get(dispatch.batch_id, end)
            reserved.setdefault(worker, []).append((min(start, preempted), min(end, preempted)))
            if number == 0:
                continue
            sent = dispatch.transfer_starts[number - 1]
            before = dispatch.starts[number - 1] + driver.latency(dispatch, number - 1)
            source, target = (_node(name, story.workers_per_node) for name in dispatch.path[number - 1 : number + 1])
            size = len(dispatch.request_ids)
            length = transfers[StageRef(dispatch.module, dispatch.pipeline, number - 1)][size - 1]
            assert before <= sent
            assert sent + (length if source != target else 0) <= start
            if source != target and length:
                reserved.setdefault(f"up {source}", []).append((sent, sent + length))
                reserved.setdefault(f"down {target}", []).append((sent, sent + length))
    for resource, intervals in reserved.items():
        for (_, end), (start, _) in pairwise(sorted(intervals)):
            assert end <= start, f"{resource} has {sorted(intervals)}"


one_pool = st.builds(
    lambda batch, one, policy: plan_of(module("m").pipeline(batch, one), policy=policy),
    st.integers(1, 6),
    stages,
    st.sampled_from([BatchingPolicy.DEFERRED, BatchingPolicy.EAGER]),
)


@given(st.builds(Story, one_pool, arrivals))
@settings(max_examples=200, deadline=None)
def test_requests_that_an_idle_worker_could_serve_are_not_dropped(story: Story) -> None:
    driver = story.play()

    (ref, spec), *_ = refs(story.plan)
    busy = {worker_name(ref, replica): [] for replica in range(spec.replicas)}
    for at, dispatch in driver.dispatches:
        busy[dispatch.path[0]].append((at, dispatch.finish))
    arrived = 0
    for request_id, (gap, slack, _) in enumerate(story.arrivals):
        arrived += gap
        if request_id not in driver.drops:
            continue
        at, drop = driver.drops[request_id]
        if drop.reason is DropReason.TOO_LATE:
            last_feasible = arrived + slack - spec.latency_micros[0]
            free = [w for w, times in busy.items() if not any(start <= last_feasible < end for start, end in times)]
            assert last_feasible < arrived or not free, f"{free} could have served request {request_id}"
        else:
            assert drop.reason is DropReason.OVERLOAD
            free = [w for w, times in busy.items() if not any(start < at < end for start, end in times)]
            assert len(free) <= 1, f"{free} were idle when request {request_id} was given up"


def _node(worker: str, workers_per_node: int) -> str:
    stage_name, _, replica = worker.rpartition(".")
    return f"{stage_name}/{int(replica) // workers_per_node}"


@pytest.mark.parametrize("policy", POLICIES)
def test_scenario_without_workers_ends(policy: str) -> None:
    story = Story(plan_of(module("m").pipeline(2, stage("free")), policy=policy), [(0, 3000, 0)], losses=[(0, 0, None)])

    assert story.play().reasons() == {0: DropReason.NO_WORKERS}
