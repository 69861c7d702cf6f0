"""Missing reports are found exactly when they are due, in order."""

from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.scheduling.reservations.report_calendar import ReportCalendar
from partita_runtime.scheduling.workers.timeline import Reservation, Timeline

MOMENTS = st.integers(0, 3000)


def execution(batch_id: int, stage: int = 0) -> Reservation:
    return Reservation(Timeline(), 0, 1, batch_id, stage)


def taken(calendar: ReportCalendar, now: int) -> list[int]:
    overdue = []
    while (found := calendar.take_overdue(now)) is not None:
        overdue.append(found.batch_id)
    return overdue


@given(
    due=st.lists(MOMENTS, min_size=1, max_size=30),
    looks=st.lists(MOMENTS, max_size=10),
    done=st.sets(st.integers(0, 29)),
)
def test_each_is_found_at_the_first_check_after_its_time(due: list[int], looks: list[int], done: set[int]) -> None:
    calendar = ReportCalendar()
    executions = [execution(batch_id) for batch_id in range(len(due))]
    for one, at in zip(executions, due, strict=True):
        calendar.expect(one, at)
    for batch_id in done & set(range(len(due))):
        executions[batch_id].done = True

    before = -1
    for now in [*sorted(looks), 3000]:
        want = sorted((at, b) for b, at in enumerate(due) if before < at <= now and b not in done)
        assert taken(calendar, now) == [batch_id for _, batch_id in want]
        before = max(before, now)


def test_reports_due_in_a_started_slot_are_found_too() -> None:
    calendar = ReportCalendar()
    calendar.expect(execution(0), 100)
    assert taken(calendar, 10) == []

    calendar.expect(execution(1), 11)
    calendar.expect(execution(2), 5)

    assert taken(calendar, 11) == [2, 1]
    assert taken(calendar, 100) == [0]


def test_stages_of_a_batch_are_found_in_their_order() -> None:
    calendar = ReportCalendar()
    for stage in (1, 0):
        calendar.expect(execution(7, stage), 50)

    first = calendar.take_overdue(50)

    assert first is not None
    assert first.stage == 0
