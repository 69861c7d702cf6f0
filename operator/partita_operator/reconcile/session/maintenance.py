"""Maintenance windows: whether one is open, and when the next one begins. All times are UTC."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from partita_api.session.plan_changes import MaintenanceWindow, Weekday

_DAYS = tuple(Weekday)
_WEEK = timedelta(weeks=1)


def is_open(windows: Sequence[MaintenanceWindow], now: datetime) -> bool:
    """Whether changes are allowed at `now`; without a window they always are."""
    return not windows or any(
        begin <= now < begin + timedelta(minutes=window.duration_minutes)
        for window in windows
        for begin in _beginnings(window, now)
    )


def next_beginning(windows: Sequence[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the next window after `now` begins; None without any window."""
    return min((begin for window in windows for begin in _beginnings(window, now) if begin > now), default=None)


def _beginnings(window: MaintenanceWindow, now: datetime) -> Iterator[datetime]:
    """When the window begins, from a week before `now` (it may last that long) to a week after."""
    hour, minute = (int(part) for part in window.start.split(":"))
    day = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0) - _WEEK
    for number in range(2 * 7 + 1):
        begin = day + timedelta(days=number)
        if not window.days or _DAYS[begin.weekday()] in window.days:
            yield begin
