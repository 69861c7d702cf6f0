"""When maintenance windows are open, and when the next one begins."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partita_api.session.plan_changes import MaintenanceWindow, Weekday
from partita_operator.reconcile.session.maintenance import is_open, next_beginning


def window(*days: Weekday, start: str = "22:00", minutes: int = 120) -> MaintenanceWindow:
    return MaintenanceWindow(days=days, start=start, duration_minutes=minutes)


def at(text: str) -> datetime:
    """A time in the week of Monday, 5 January 2026."""
    return datetime.fromisoformat(f"2026-01-{text}:00+00:00")


SATURDAY = window(Weekday.SATURDAY)
LONG = window(Weekday.FRIDAY, start="12:00", minutes=5 * 1440)


@pytest.mark.parametrize(
    ("windows", "now", "want_open", "want_next"),
    [
        pytest.param((), "05T10:00", True, None, id="no window: always"),
        pytest.param((window(),), "05T21:59", False, "05T22:00", id="every day, before"),
        pytest.param((window(),), "05T22:00", True, "06T22:00", id="its start"),
        pytest.param((window(),), "05T23:59", True, "06T22:00", id="its last minute"),
        pytest.param((window(),), "06T00:00", False, "06T22:00", id="its end"),
        pytest.param((SATURDAY,), "09T23:00", False, "10T22:00", id="another day"),
        pytest.param((SATURDAY,), "10T23:00", True, "17T22:00", id="on its day"),
        pytest.param((window(Weekday.SUNDAY, minutes=240),), "12T01:00", True, "18T22:00", id="over midnight"),
        pytest.param((LONG,), "05T13:00", True, "09T12:00", id="over the end of the week"),
        pytest.param((SATURDAY, window(start="03:00")), "05T10:00", False, "06T03:00", id="the nearest of several"),
        pytest.param((window(minutes=10_080),), "05T10:00", True, "05T22:00", id="a whole week: always"),
    ],
)
def test_windows(windows: tuple[MaintenanceWindow, ...], now: str, want_open: bool, want_next: str | None) -> None:
    assert is_open(windows, at(now)) is want_open
    assert next_beginning(windows, at(now)) == (at(want_next) if want_next else None)


def test_the_time_zone_of_the_clock_does_not_matter() -> None:
    here = timezone(timedelta(hours=9))
    assert is_open((window(),), at("05T22:30").astimezone(here))
    assert next_beginning((window(),), at("05T10:00").astimezone(here)) == at("05T22:00")


MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))
WINDOWS = st.builds(
    lambda days, start, minutes: window(*days, start=f"{start:%H:%M}", minutes=minutes),
    st.lists(st.sampled_from(Weekday), max_size=7),
    st.times(),
    st.integers(10, 10_080),
)


@given(st.lists(WINDOWS, min_size=1, max_size=4).map(tuple), MOMENTS)
def test_a_window_opens_at_the_announced_time(windows: tuple[MaintenanceWindow, ...], now: datetime) -> None:
    begin = next_beginning(windows, now)
    assert begin is not None
    assert now < begin <= now + timedelta(weeks=1)
    assert is_open(windows, begin)
    if not is_open(windows, now):
        between = now + (begin - now) / 2
        assert not is_open(windows, between), "no window opens without an announcement"


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"start": "24:00"}, "such as 22:30", id="invalid hour"),
        pytest.param({"start": "9:30"}, "such as 22:30", id="one digit"),
        pytest.param({"days": ["Someday"]}, "days", id="invalid day"),
        pytest.param({"durationMinutes": 0}, "greater than or equal to 10", id="not a time"),
        pytest.param({"durationMinutes": 10_081}, "less than or equal to 10080", id="over a week"),
    ],
)
def test_a_wrong_window_is_refused(change: dict[str, Any], want: str) -> None:
    with pytest.raises(ValidationError, match=want):
        MaintenanceWindow.model_validate({"start": "22:00", "durationMinutes": 60, **change})
