"""The waiting room, where requests wait for replicas: admission order, and refusals."""

import pytest

from partita_runtime.serving.session.body_memory import BodyMemory
from partita_runtime.serving.session.unserved_error import UnservedError
from partita_runtime.serving.session.waiting_room import REMEMBERED_MICROS, Place, WaitingRoom
from partita_runtime.serving.telemetry.signals import Meter

SECOND = 1_000_000


class Guests:
    """The waiting room and its requests."""

    def __init__(self, most: int = 100, memory: int = 1000) -> None:
        self.meter = Meter()
        self.bodies = BodyMemory(memory)
        self.room = WaitingRoom(most, self.bodies, self.meter)
        self.places: dict[str, Place] = {}
        self.told: list[str] = []

    def come(self, name: str, samples: int = 1, size: int = 1, now: int = 0, until: int = 100 * SECOND) -> None:
        self.places[name] = self.room.enter(Guest(self, name), samples, size, now, until)

    def open(self, width: int, now: int = SECOND) -> list[str]:
        """Admitted requests."""
        self.told = []
        self.room.open(width, now)
        return self.told

    def leave(self, *names: str, now: int = SECOND) -> None:
        for name in names:
            self.room.leave(self.places[name], now)


class Guest:
    def __init__(self, guests: Guests, name: str) -> None:
        self.guests, self.name = guests, name

    def let_in(self, now: int) -> None:
        self.guests.told.append(self.name)

    def turned_away(self, error: UnservedError) -> None:
        self.guests.told.append(f"{self.name}: {error.reason.name}")


def test_requests_are_admitted_in_order_up_to_the_capacity_of_the_replicas() -> None:
    guests = Guests()
    for name in "abcde":
        guests.come(name)
    assert guests.open(2) == ["a", "b"]
    assert guests.open(2) == []
    guests.leave("b")
    assert guests.open(2) == ["c"]
    guests.leave("a", "c")
    assert guests.open(4) == ["d", "e"]


def test_a_request_larger_than_the_capacity_is_admitted_alone() -> None:
    guests = Guests()
    guests.come("large", samples=5)
    guests.come("small")
    assert guests.open(2) == ["large"]
    assert guests.open(2) == []
    guests.leave("large")
    assert guests.open(2) == ["small"]


def test_a_request_that_finds_no_replica_is_the_next_to_be_admitted() -> None:
    guests = Guests()
    for name in "abc":
        guests.come(name)
    assert guests.open(1) == ["a"]
    assert guests.room.again(guests.places["a"], 2 * SECOND)
    assert len(guests.room) == 3
    assert guests.open(1) == ["a"]
    assert not guests.room.again(guests.places["a"], 100 * SECOND), "its time is over"


def test_requests_that_waited_too_long_are_refused() -> None:
    guests = Guests()
    guests.come("a", until=10)
    guests.come("b", until=20)
    guests.room.expire(15)
    assert guests.told == ["a: NO_REPLICAS"]
    assert guests.open(10) == ["b"]


def test_cancelled_requests_count_for_a_moment_longer() -> None:
    guests = Guests()
    guests.come("a", samples=3)
    guests.come("b")
    assert guests.room.asking(0) == 4
    guests.leave("a", now=SECOND)
    assert guests.room.asking(REMEMBERED_MICROS) == 4
    assert guests.room.asking(REMEMBERED_MICROS + SECOND) == 1
    guests.leave("b", now=REMEMBERED_MICROS)
    guests.come("c")
    guests.open(1)
    assert guests.room.asking(REMEMBERED_MICROS) == 0, "there are replicas"


def test_space_is_bounded_and_released() -> None:
    guests = Guests(most=2, memory=10)
    guests.come("a", size=4)
    with pytest.raises(UnservedError, match="more than 10 bytes in all"):
        guests.come("b", size=7)
    guests.come("b", size=6)
    with pytest.raises(UnservedError, match="2 requests are held already"):
        guests.come("c", size=0)
    guests.open(1)
    guests.leave("a", "b")
    assert guests.bodies.taken == 0
    guests.come("c", size=10)


def test_held_requests_are_counted_by_sample() -> None:
    guests = Guests()
    guests.come("a", samples=2)
    guests.come("b")
    guests.open(10, now=3 * SECOND)
    assert (guests.meter.held, guests.meter.held_micros) == (3, 9 * SECOND)
