"""When one resource (a vGPU, or one direction of a node's network) is reserved."""


class Reservation:
    """One interval on one resource, or, for a transfer, on two at once."""

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
        """The stage that is executed, or that the transfer leads to."""
        self.following: Reservation | None = None
        """What the same batch does next."""
        self.expires = False
        """Whether it simply ends at `end`: its batch was abandoned, so no report of it counts."""
        self.done = False
        self.report_due = 0
        """When the report of it must be there, if it is an execution."""

    def place(self) -> None:
        """Take the interval, which must be free."""
        self.timeline.add(self)
        if self.other is not None:
            self.other.add(self)

    def release(self) -> None:
        """Give the interval back."""
        self.done = True
        self.timeline.remove(self)
        if self.other is not None:
            self.other.remove(self)

    def timelines(self) -> "list[Timeline]":
        """All that it is on."""
        return [self.timeline] if self.other is None else [self.timeline, self.other]


class Timeline:
    """Reservations of one resource: sorted, and never two at once."""

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
        """Give a reserved interval back."""
        self.reservations.remove(reservation)
        self.changed()

    def after(self, reservation: Reservation) -> Reservation | None:
        """The reservation that comes next on this resource."""
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
    """Move everything later that `overdue`, whose end has moved, now overlaps; what was moved, `overdue` first.

    What follows is the next reservation on the same resources, and what the same batch does next. The order on every
    resource stays, so a feasible schedule stays one.
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
