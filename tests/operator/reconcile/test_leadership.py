"""A replica takes the Lease, renews it, or waits. Clocks of different replicas are never compared."""

import pytest

from partita_operator.reconcile.leadership import (
    LeaseObservation,
    LeaseRecord,
    LeaseStep,
    next_step,
    observe,
    still_holds,
)


def lease(holder: str, version: str = "1", seconds: int = 15) -> LeaseRecord:
    return LeaseRecord(holder, seconds, 0, version)


@pytest.mark.parametrize(
    ("record", "unchanged_for", "want"),
    [
        pytest.param(None, 0, LeaseStep.TAKE, id="there is none"),
        pytest.param(lease(""), 0, LeaseStep.TAKE, id="released"),
        pytest.param(lease("me"), 0, LeaseStep.RENEW, id="mine"),
        pytest.param(lease("me"), 100, LeaseStep.RENEW, id="mine"),
        pytest.param(lease("other"), 14.9, LeaseStep.WAIT, id="another's"),
        pytest.param(lease("other"), 15, LeaseStep.TAKE, id="another's, not renewed"),
        pytest.param(lease("other", seconds=60), 15, LeaseStep.WAIT, id="another's, with a longer duration"),
    ],
)
def test_the_next_step(record: LeaseRecord | None, unchanged_for: float, want: LeaseStep) -> None:
    assert next_step("me", LeaseObservation(record, since=1000.0), now=1000.0 + unchanged_for) is want


def test_every_renewal_restarts_the_wait() -> None:
    seen = observe(None, lease("other", "1"), now=10)
    assert observe(seen, lease("other", "1"), now=20).since == 10
    assert observe(seen, lease("other", "2"), now=20).since == 20


@pytest.mark.parametrize(
    ("renewed", "want"),
    [
        pytest.param(None, False, id="never renewed"),
        pytest.param(91.0, True, id="renewed recently"),
        pytest.param(90.0, False, id="stops before another may start"),
    ],
)
def test_how_long_a_renewal_is_valid(renewed: float | None, want: bool) -> None:
    assert still_holds(renewed, 15, now=100.0) is want
