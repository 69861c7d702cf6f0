"""A vGPU runs batches in reserved order, and never waits longer than that is worth: on a virtual clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.serving.replica import reserved_order
from partita_runtime.serving.replica.reserved_order import BatchKey, ReservedOrder, ReservedTimes

NEVER = 1 << 40


@dataclass(frozen=True)
class Batch:
    """A batch on its way to the vGPU."""

    key: BatchKey
    arrives: int
    """NEVER if it is lost."""
    takes: int = 10
    start: int | None = None
    """Reserved; None without a reservation."""
    slack: int = 0
    announced: int = 0
    """When the vGPU learns of the reservation."""
    withdrawn: int = NEVER

    @property
    def runs(self) -> bool:
        return self.arrives < NEVER and self.withdrawn == NEVER


def batch(number: int, arrives: int, start: int | None = None, frontend: str = "f", **fields: int) -> Batch:
    return Batch(BatchKey(frontend, number), arrives, start=start, **fields)


@dataclass
class VirtualVgpu:
    """Runs batches one at a time."""

    order: ReservedOrder[Batch] = field(default_factory=ReservedOrder)
    started: dict[BatchKey, int] = field(default_factory=dict)
    """In order."""
    idle: list[tuple[int, int, int]] = field(default_factory=list)
    """Times from and until, and the reserved start of the batch that waited meanwhile and was next."""
    waiting: dict[BatchKey, int] = field(default_factory=dict)
    """Reserved starts of the batches that have arrived."""

    def play(self, batches: Sequence[Batch]) -> "VirtualVgpu":
        events: list[tuple[int, int, str, Batch]] = []
        for number, one in enumerate(batches):
            if one.start is not None:
                events.append((one.announced, number, "announced", one))
            for at, kind in ((one.arrives, "arrives"), (one.withdrawn, "withdrawn")):
                if at < NEVER:
                    events.append((at, number, kind, one))
        events.sort(key=lambda event: event[:2])
        now = free = 0
        while True:
            while events and events[0][0] <= now:
                self._happens(*events.pop(0)[2:], now)
            due = self.order.due()
            if due is not None and max(due, free) <= now:
                one, _ = self.order.take()
                self.started[one.key] = now
                del self.waiting[one.key]
                free = now + one.takes
                continue
            then = min([at for at, *_ in events[:1]] + ([] if due is None else [max(due, free)]), default=NEVER)
            if due is not None and free < then:
                self.idle.append((max(now, free), then, min(self.waiting.values())))
            if then == NEVER:
                return self
            now = then

    def _happens(self, kind: str, one: Batch, now: int) -> None:
        if kind == "announced":
            assert one.start is not None
            self.order.expect(one.key, ReservedTimes(one.start, one.start + one.slack, 0))
        elif kind == "arrives":
            self.order.arrive(one.key, one, now)
            known = one.start is not None and one.announced <= now < one.withdrawn
            self.waiting[one.key] = one.start if known and one.start is not None else now
        else:
            self.waiting.pop(one.key, None)
            self.order.withdraw(one.key)

    @property
    def numbers(self) -> list[int]:
        return [key.number for key in self.started]


def test_batches_that_overtake_each_other_run_in_reserved_order() -> None:
    ran = VirtualVgpu().play([batch(1, arrives=20, start=20), batch(2, arrives=5, start=30)])
    assert [*ran.started.items()] == [(("f", 1, None), 20), (("f", 2, None), 30)]


def test_a_batch_that_nothing_is_reserved_before_runs_at_once() -> None:
    ran = VirtualVgpu().play([batch(1, arrives=3, start=20), batch(2, arrives=5, start=40)])
    assert [*ran.started.values()] == [3, 13]


def test_a_batch_does_not_wait_for_one_that_would_miss_its_deadline() -> None:
    late, early = batch(1, arrives=29, start=20, slack=4), batch(2, arrives=5, start=30)
    assert VirtualVgpu().play([late, early]).started == {early.key: 24, late.key: 34}
    in_time = replace(late, arrives=23)
    assert VirtualVgpu().play([in_time, early]).started == {late.key: 23, early.key: 33}


def test_a_batch_waits_for_a_lost_one_until_its_own_start_at_most() -> None:
    lost, early = batch(1, arrives=NEVER, start=20, slack=1000), batch(2, arrives=5, start=30)
    assert VirtualVgpu().play([lost, early]).started == {early.key: 30}


def test_a_batch_does_not_wait_for_a_withdrawn_one() -> None:
    lost, early = batch(1, arrives=NEVER, start=20, slack=1000, withdrawn=8), batch(2, arrives=5, start=30)
    assert VirtualVgpu().play([lost, early]).started == {early.key: 8}


def test_a_withdrawn_batch_that_has_arrived_does_not_run() -> None:
    ran = VirtualVgpu().play([batch(1, arrives=0), batch(2, arrives=1, start=1, withdrawn=5), batch(3, arrives=2)])
    assert ran.numbers == [1, 3]


def test_batches_without_reservations_run_in_order_of_arrival_among_the_others() -> None:
    ran = VirtualVgpu().play(
        [batch(0, arrives=0), batch(1, arrives=4), batch(2, arrives=3), batch(3, arrives=5, start=1, announced=5)]
    )
    assert ran.numbers == [0, 3, 2, 1]


def test_a_frontend_that_has_left_is_not_waited_for() -> None:
    order = ReservedOrder[str]()
    for frontend in ("gone", "here"):
        order.expect(BatchKey(frontend, 1), ReservedTimes(10, 1000, 0))
    order.expect(BatchKey("here", 2), ReservedTimes(50, 1000, 0))
    order.arrive(BatchKey("here", 1), "first", 0)
    order.arrive(BatchKey("here", 2), "second", 0)
    order.arrive(BatchKey("gone", 3), "none", 0)
    order.forget("gone")
    assert (order.take()[0], order.due(), order.take()[0], order.due()) == ("first", 0, "second", None)


def test_what_is_reserved_comes_back_with_the_batch() -> None:
    order, reserved = ReservedOrder[str](), ReservedTimes(10, 20, 30)
    order.expect(BatchKey("f", 1), reserved)
    order.arrive(BatchKey("f", 1), "work", 0)
    assert order.take() == ("work", reserved)


def test_the_number_of_expected_batches_is_bounded() -> None:
    order = ReservedOrder[str]()
    for number in range(reserved_order.MOST_EXPECTED + 5):
        order.expect(BatchKey("f", number), ReservedTimes(100 + number, NEVER, 0))
    order.arrive(BatchKey("f", 5), "work", 0)
    assert order.due() == 0, "those before it are forgotten"


times = st.integers(0, 120)
batches = st.lists(
    st.builds(
        Batch,
        st.builds(lambda frontend, number: BatchKey(frontend, number), st.sampled_from(["a", "b"]), st.integers(0, 50)),
        arrives=times | st.just(NEVER),
        takes=st.integers(1, 15),
        start=times | st.none(),
        slack=st.integers(0, 30),
        announced=st.integers(0, 20),
        withdrawn=st.just(NEVER) | times,
    ),
    max_size=12,
    unique_by=lambda one: one.key,
)


@given(batches)
def test_every_batch_that_comes_runs_once(all_batches: list[Batch]) -> None:
    started = VirtualVgpu().play(all_batches).started
    assert {one.key for one in all_batches if one.runs} <= started.keys()
    for one in all_batches:
        assert not one.arrives < one.withdrawn <= started.get(one.key, 0), "it was withdrawn while it waited"


@given(batches)
def test_a_vgpu_is_idle_only_before_the_reserved_start_of_the_batch_that_waits(all_batches: list[Batch]) -> None:
    for _, until, reserved in VirtualVgpu().play(all_batches).idle:
        assert until <= reserved


@given(batches)
def test_a_batch_runs_before_an_earlier_one_only_if_that_cannot_come_in_time(all_batches: list[Batch]) -> None:
    started = VirtualVgpu().play(all_batches).started
    reserved = [one for one in all_batches if one.start is not None and one.announced <= one.arrives]
    for earlier in reserved:
        for later in reserved:
            forgotten = later.withdrawn <= later.arrives
            if forgotten or later.key not in started or (earlier.start or 0) >= (later.start or 0):
                continue
            at = started[later.key]
            if earlier.announced < at < min(started.get(earlier.key, NEVER), earlier.withdrawn):
                assert earlier.arrives >= at, "it was there"
                assert at >= min((earlier.start or 0) + earlier.slack, later.start or 0), "it was worth waiting for"


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=10))
def test_batches_that_keep_to_their_reservations_run_in_their_order(steps: list[tuple[int, int, int, bool]]) -> None:
    """Each takes at most its reserved time and comes before its start; two frontends that do not know of each other."""
    start, all_batches = 50, []
    for number, (length, gap, early, other) in enumerate(steps):
        start += gap
        frontend = "other" if other else "one"
        all_batches.append(batch(number, start - early, start, frontend, takes=length, slack=1))
        start += length
    started = VirtualVgpu().play(all_batches).started
    assert [key.number for key in started] == [*range(len(steps))]
    assert all(started[one.key] <= (one.start or 0) for one in all_batches)
