"""The path search against a plain implementation of PPipe's Algorithm 2, which checks every worker."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.reservations.path_search import find_path
from partita_runtime.scheduling.workers.pools import Worker, WorkerNode
from partita_runtime.scheduling.workers.timeline import Reservation, Timeline, earliest_joint

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=4)


@st.composite
def pipelines(draw: st.DrawFn) -> PipelineState:
    """Two or three stages on a few nodes, with reservations everywhere."""
    stages = [
        stage(
            "net", alpha=draw(st.integers(0, 10)), beta=draw(st.integers(1, 20)), output_bytes=draw(st.integers(0, 20))
        )
        for _ in range(draw(st.integers(2, 3)))
    ]
    plan = plan_of(module("m").pipeline(3, *stages), bandwidth={"net": 8e6})
    pipeline = PipelineState("m", plan.modules[0].pipelines[0], plan.bandwidth)
    nodes = [WorkerNode(f"n{i}") for i in range(draw(st.integers(1, 3)))]
    for number, state in enumerate(pipeline.stages):
        for replica in range(draw(st.integers(1, 5))):
            worker = Worker(f"{number}.{replica}", draw(st.sampled_from(nodes)), 0)
            worker.node.workers.append(worker)
            state.pool.join(worker)
            _occupy(worker, draw(intervals))
    for node in nodes:
        _occupy(node.uplink, draw(intervals))
        _occupy(node.downlink, draw(intervals))
    return pipeline


def _occupy(timeline: Timeline, desired: list[tuple[int, int]]) -> None:
    for ready, length in desired:
        start = timeline.earliest(ready, length)
        Reservation(timeline, start, start + length, 0, 0).place()


def algorithm_2(pipeline: PipelineState, batch_size: int, now: int) -> int:
    """End of the batch; the first stage starts after all reservations of its worker."""
    first = pipeline.stages[0]
    worker = min(first.pool, key=lambda w: max(now, w.tail))
    at = max(now, worker.tail) + first.latency[batch_size - 1]
    for state in pipeline.stages[1:]:
        transfer = state.transfer
        best: tuple[int, Worker] | None = None
        for candidate in state.pool:
            ready = at
            if transfer[batch_size - 1] and candidate.node is not worker.node:
                sent = earliest_joint(worker.node.uplink, candidate.node.downlink, at, transfer[batch_size - 1])
                ready = sent + transfer[batch_size - 1]
            start = candidate.earliest(ready, state.latency[batch_size - 1])
            if best is None or start < best[0]:
                best = start, candidate
        assert best is not None
        at, worker = best[0] + state.latency[batch_size - 1], best[1]
    return at


@given(pipelines(), st.integers(1, 3), st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_first_two_stages_end_as_early_as_in_a_search_over_every_worker(
    pipeline: PipelineState, batch_size: int, now: int
) -> None:
    pipeline.stages = pipeline.stages[:2]
    path = find_path(pipeline, batch_size, now)

    assert path.finish == algorithm_2(pipeline, batch_size, now)


@given(pipelines(), st.integers(1, 3), st.integers(0, 50))
@settings(max_examples=200, deadline=None)
def test_everything_on_the_path_is_free(pipeline: PipelineState, batch_size: int, now: int) -> None:
    path = find_path(pipeline, batch_size, now)

    busy = path.initial_wait
    source = None
    at = now
    for number, leg in enumerate(path.legs):
        assert leg.worker.earliest(leg.start, leg.length) == leg.start
        if leg.transfer_length:
            assert source is not None
            sent = leg.transfer_start
            assert earliest_joint(source.node.uplink, leg.worker.node.downlink, sent, leg.transfer_length) == sent
            assert at <= sent
            assert sent + leg.transfer_length <= leg.start
        if number:
            busy += leg.start - at - leg.transfer_length
        source, at = leg.worker, leg.start + leg.length
    assert path.waiting == busy
    assert path.finish == at
