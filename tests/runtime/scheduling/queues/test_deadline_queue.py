"""The queue of a module is in order of deadlines, independent of the order of arrival."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.scheduling.queues.deadline_queue import DeadlineQueue, QueuedRequest


@given(st.lists(st.integers(0, 20), max_size=30), st.data())
def test_requests_leave_by_deadline(deadlines: list[int], data: st.DataObject) -> None:
    queue = DeadlineQueue()
    requests = [QueuedRequest(deadline, number, 0, 0) for number, deadline in enumerate(deadlines)]
    for request in requests:
        queue.add(request)
    gone = data.draw(st.sets(st.sampled_from(requests)) if requests else st.just(set()))
    for request in gone:
        queue.remove(request)

    assert len(queue) == len(requests) - len(gone)
    assert queue.take(len(requests)) == sorted(
        set(requests) - gone, key=lambda request: (request.deadline, request.request_id)
    )


def test_removing_an_unknown_request_is_an_error() -> None:
    queue = DeadlineQueue()
    queue.add(QueuedRequest(10, 1, 0, 0))

    with pytest.raises(KeyError, match="request 2"):
        queue.remove(QueuedRequest(10, 2, 0, 0))
    assert len(queue) == 1
