"""The work queue: each key once, by one worker at a time, and again after a pause."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from partita_operator.handlers.workqueue import WorkQueue


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop without real waiting: the clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()


def run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(story)


Work = Callable[[str], Awaitable[float | None]]


async def for_seconds(queue: WorkQueue[str], work: Work, seconds: float, workers: int = 2) -> None:
    """Run the queue for some time."""
    task = asyncio.create_task(queue.run(work, workers))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_waiting_key_is_queued_only_once() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seen: list[str] = []

        async def work(key: str) -> None:
            seen.append(key)

        for key in ("a", "b", "a", "a"):
            queue.add(key)
        assert len(queue) == 2
        await for_seconds(queue, work, 1)
        assert sorted(seen) == ["a", "b"]

    run(story())


def test_a_key_that_is_added_during_its_work_is_processed_again() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        spans: list[tuple[float, float]] = []

        async def work(key: str) -> None:
            began = now()
            if not spans:
                queue.add(key)
            await asyncio.sleep(10)
            spans.append((began, now()))

        queue.add("a")
        await for_seconds(queue, work, 100, workers=4)
        assert spans == [(0, 10), (10, 20)]

    run(story())


def test_the_time_that_a_key_waits_for_a_worker_is_reported() -> None:
    async def story() -> None:
        waits: list[tuple[float, bool]] = []
        queue: WorkQueue[str] = WorkQueue(on_taken=lambda seconds, by_time: waits.append((seconds, by_time)))

        async def work(_key: str) -> None:
            await asyncio.sleep(10)

        for key in ("a", "b", "c"):
            queue.add(key)
        await for_seconds(queue, work, 100, workers=1)
        assert waits == [(0, False), (10, False), (20, False)]

    run(story())


def test_news_of_a_key_whose_time_has_come_wait_from_their_own_arrival() -> None:
    async def story() -> None:
        waits: list[tuple[float, bool]] = []
        queue: WorkQueue[str] = WorkQueue(on_taken=lambda seconds, by_time: waits.append((seconds, by_time)))

        async def work(key: str) -> None:
            await asyncio.sleep(10)
            if key == "busy":
                queue.add("b")

        queue.add("busy")
        queue.add_after("a", 1)
        queue.add_after("b", 1)
        await for_seconds(queue, work, 100, workers=1)
        assert waits == [(0, False), (0, False), (19, True)], "b comes before a, and its news have not waited"

    run(story())


def test_slow_keys_of_one_group_leave_workers_to_the_others() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue(group=lambda key: key[0])
        ended: dict[str, float] = {}

        async def work(key: str) -> None:
            await asyncio.sleep(30 if key.startswith("s") else 1)
            ended[key] = now()

        for key in (*(f"slow{n}" for n in range(8)), "a", "b"):
            queue.add(key)
        await for_seconds(queue, work, 100, workers=4)
        assert (ended["a"], ended["b"]) == (1, 2), "one of four workers is left to other groups"
        assert sorted(ended[f"slow{n}"] for n in range(8)) == [30, 30, 30, 60, 60, 60, 90, 90]

    run(story())


def test_news_of_a_key_that_waits_for_its_group_s_share_are_processed_once() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue(group=lambda _: "one")
        seen: list[tuple[str, float]] = []

        async def work(key: str) -> None:
            seen.append((key, now()))
            await asyncio.sleep(10)

        queue.add("busy")
        queue.add_after("late", 1)
        queue.add_after("later", 2)
        asyncio.get_running_loop().call_later(3, queue.add, "later")
        await for_seconds(queue, work, 100, workers=1)
        assert seen == [("busy", 0), ("later", 10), ("late", 20)]
        assert len(queue) == 0

    run(story())


def test_keys_are_processed_by_several_workers_at_once() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        ends: list[float] = []

        async def work(_: str) -> None:
            await asyncio.sleep(10)
            ends.append(now())

        for number in range(5):
            queue.add(str(number))
        await for_seconds(queue, work, 100, workers=2)
        assert ends == [10, 10, 20, 20, 30]

    run(story())


@pytest.mark.parametrize(
    ("delays", "want"),
    [
        pytest.param([5], [5], id="later"),
        pytest.param([5, 3], [3], id="the earlier time counts"),
        pytest.param([3, 5], [3], id="the earlier time counts, in any order"),
        pytest.param([3, 0], [0], id="at once"),
    ],
)
def test_a_key_can_be_scheduled_for_later(delays: list[float], want: list[float]) -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seen: list[float] = []

        async def work(_: str) -> None:
            seen.append(now())

        for delay in delays:
            queue.add_after("a", delay)
        await for_seconds(queue, work, 100)
        assert seen == want

    run(story())


def test_work_returns_the_time_of_its_next_run() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seen: list[float] = []

        async def work(_: str) -> float | None:
            seen.append(now())
            return 7 if len(seen) < 3 else None

        queue.add("a")
        await for_seconds(queue, work, 100)
        assert seen == [0, 7, 14]

    run(story())


def test_failed_work_is_repeated_with_growing_pauses_until_it_succeeds() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue(first_backoff_s=1, max_backoff_s=4)
        seen: list[float] = []

        async def work(_: str) -> float | None:
            seen.append(now())
            if len(seen) in (6, 8):
                return 10
            if len(seen) < 9:
                raise RuntimeError("not yet")
            return None

        queue.add("a")
        await for_seconds(queue, work, 100)
        pauses = [after - before for before, after in itertools.pairwise(seen)]
        assert pauses == [1, 2, 4, 4, 4, 10, 1, 10]

    run(story())


def test_failures_of_one_key_do_not_delay_others() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seen: list[str] = []

        async def work(key: str) -> None:
            if key == "bad":
                raise RuntimeError("always")
            seen.append(key)

        queue.add("bad")
        queue.add("good")
        await for_seconds(queue, work, 1, workers=1)
        assert seen == ["good"]

    run(story())


def test_keys_with_news_come_before_keys_whose_time_has_come() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue(rank=lambda key: {"urgent": -1}.get(key, 0))
        seen: list[str] = []

        async def work(key: str) -> None:
            seen.append(key)
            await asyncio.sleep(10)

        for key in ("due", "due and changed"):
            queue.add_after(key, 1)
        queue.add("first")
        task = asyncio.create_task(queue.run(work, workers=1))
        await asyncio.sleep(5)
        for key in ("changed", "due and changed", "urgent"):
            queue.add(key)
        assert len(queue) == 4
        await asyncio.sleep(100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert seen == ["first", "urgent", "changed", "due and changed", "due"]

    run(story())


def test_a_key_that_is_due_twice_while_it_is_processed_is_processed_once_more() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seen: list[float] = []

        async def work(_: str) -> None:
            seen.append(now())
            if len(seen) == 1:
                queue.add_after("a", 2)
                await asyncio.sleep(5)
                queue.add("a")

        queue.add("a")
        await for_seconds(queue, work, 100)
        assert seen == [0, 5]

    run(story())
