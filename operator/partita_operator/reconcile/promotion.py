"""How a version gets its share in steps: the next one begins once the version has met its SLO with real requests."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from partita_api.conditions import ConditionType, is_true
from partita_api.fields.quantity import Percent
from partita_api.inferencesession import InferenceSession
from partita_api.session.versions import Version, VersionStatus
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.findings import condition


@dataclass(frozen=True)
class Step:
    """The step that a version has reached."""

    share: Percent
    since: str
    """When it began, or began again after the version got no share."""
    following: Percent | None
    """The share of the next step; None for the last one."""
    ends: str = ""
    """When the next one begins at the earliest."""


def promotion_step(
    version: Version, before: VersionStatus | None, other: InferenceSession, now: datetime
) -> Step | None:
    """The step of a version that gets a share now; None without promotion. `other` is its session.

    A step is known by its share: after a change of the steps, the largest one goes on that is not above it.
    """
    if version.promotion is None:
        return None
    shares, length = (*version.promotion.shares, version.share), timedelta(minutes=version.promotion.minutes)
    reached, began = (before.promoted, before.promoted_time) if before is not None else (None, None)
    number = _last_up_to(shares, reached)
    since = now if reached is None or began is None else datetime.fromisoformat(began)
    met = _met_since(other, since)
    if number + 1 < len(shares) and met is not None and now >= met + length:
        number, since = number + 1, now
    if number + 1 == len(shares):
        return Step(shares[number], timestamp(since), None)
    return Step(shares[number], timestamp(since), shares[number + 1], timestamp(since + length))


def _last_up_to(shares: tuple[Percent, ...], reached: str | None) -> int:
    if reached is None:
        return 0
    return max((i for i, share in enumerate(shares) if share.fraction <= Percent(reached).fraction), default=0)


def _met_since(other: InferenceSession, since: datetime) -> datetime | None:
    """Since when in this step the session has met its SLO; None if it does not, or gets no requests."""
    conditions, signals = other.status.conditions, other.status.signals
    found = condition(conditions, ConditionType.SLO_MET)
    asked = signals is not None and float(signals.offered_rate) > 0
    if found is None or not is_true(conditions, ConditionType.SLO_MET) or not asked:
        return None
    return max(since, datetime.fromisoformat(found.last_transition_time))
