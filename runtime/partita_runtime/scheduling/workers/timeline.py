"""The reservations of one resource: a vGPU, or one direction of a node's network."""


class Reservation:
    """One interval on one resource; a transfer is on two resources at once."""

    __slots__ = ("batch_id", "done", "end", "expires", "following", "other", "report_due", "stage", "start", "timeline")

    def __init__(
        self, timeline: "Timeline", start: int, end: int, batch_id: int, stage: int, other: "Timeline | None" = None
    ) -> None:
        self.timeline = timeline
        self.other = other
        """The second resource, for a transfer."""
        self.start = start
        self.end = end
        self.batch_id = batch_id
        self.stage = stage
        """The executed stage, or the target stage of a transfer."""
        self.following: Reservation | None = None
        """The next reservation of the same batch."""
        self.expires = False
        """Whether it ends at `end` without a report, as its batch is lost or cancelled."""
        self.done = False
        self.report_due = 0
        """When its report is due, if it is an execution (microseconds)."""

    def place(self) -> None:
        """Reserve the interval, which must be free."""
        self.timeline.add(self)
        if self.other is not None:
            self.other.add(self)

    def release(self) -> None:
        """Free the interval."""
        self.done = True
        self.timeline.remove(self)
        if self.other is not None:
            self.other.remove(self)

    def free_since(self) -> int:
        """From when its resources are free until it starts; 0 if nothing is reserved before it."""
        since = 0
        for timeline in self.timelines():
            position = timeline.reservations.index(self)
            if position:
                since = max(since, timeline.reservations[position - 1].end)
        return since

    def timelines(self) -> "list[Timeline]":
        """Its resources."""
        return [self.timeline] if self.other is None else [self.timeline, self.other]


class Timeline:
    """Reservations of one resource, sorted and without overlaps."""

    __slots__ = ("reservations",)

    def __init__(self) -> None:
        self.reservations: list[Reservation] = []

    @property
    def tail(self) -> int:
        """End of the last reservation; 0 if there is none."""
        return self.reservations[-1].end if self.reservations else 0

    @property
    def last_start(self) -> int:
        """Start of the last reservation; 0 if there is none."""
        return self.reservations[-1].start if self.reservations else 0

    def earliest(self, ready: int, length: int) -> int:
        """The earliest start, not before `ready`, of a free interval of this length (PPipe, Algorithm 2)."""
        for reservation in self.reservations:
            if reservation.end <= ready:
                continue
            if reservation.start - ready >= length:
                break
            ready = reservation.end
        return ready

    def add(self, reservation: Reservation) -> None:
        """Reserve an interval that is free."""
        reservations = self.reservations
        position = len(reservations)
        while position and reservations[position - 1].start > reservation.start:
            position -= 1
        reservations.insert(position, reservation)
        self.changed()

    def remove(self, reservation: Reservation) -> None:
        """Remove a reservation."""
        self.reservations.remove(reservation)
        self.changed()

    def after(self, reservation: Reservation) -> Reservation | None:
        """The next reservation on this resource."""
        position = self.reservations.index(reservation) + 1
        return self.reservations[position] if position < len(self.reservations) else None

    def changed(self) -> None:
        """Called whenever `tail` may have moved."""


def earliest_joint(one: Timeline, other: Timeline, ready: int, length: int) -> int:
    """The earliest start, not before `ready`, of an interval of this length that is free on both resources."""
    while True:
        start = other.earliest(one.earliest(ready, length), length)
        if start == one.earliest(start, length):
            return start
        ready = start


def delay_behind(overdue: Reservation) -> list[Reservation]:
    """Delay all reservations that overlap with `overdue`, whose end has moved; returns them, `overdue` first.

    The followers of a reservation are the next ones on its resources and the next one of its batch. The order on every
    resource stays, so a feasible schedule stays feasible.
    """
    moved: list[Reservation] = [overdue]
    pending: list[Reservation] = [overdue]
    while pending:
        reservation = pending.pop()
        for follower in _followers(reservation):
            if follower.start < reservation.end:
                follower.end += reservation.end - follower.start
                follower.start = reservation.end
                moved.append(follower)
                pending.append(follower)
    for timeline in dict.fromkeys(timeline for reservation in moved for timeline in reservation.timelines()):
        timeline.changed()
    return moved


def _followers(reservation: Reservation) -> list[Reservation]:
    following = [timeline.after(reservation) for timeline in reservation.timelines()]
    following.append(reservation.following)
    return [r for r in following if r is not None and not r.done]
