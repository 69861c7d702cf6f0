"""Conditions as the reconcilers conclude them, and the events that their changes are worth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from partita_api.conditions import Condition, ConditionStatus, ConditionType, set_condition
from partita_operator.reconcile.actions import Event, EventType
from partita_operator.reconcile.clock import seconds_since, timestamp
from partita_operator.reconcile.reasons import PROBLEMS, Reason
from partita_planner.problem import NoPlanReason

WORTH_AN_EVENT: Final = frozenset(
    {
        ConditionType.READY,
        ConditionType.PROFILED,
        ConditionType.PLANNED,
        ConditionType.ROLLED_OUT,
        ConditionType.SLO_MET,
        ConditionType.HELD,
        ConditionType.PARTITIONED,
    }
)
"""Reconciling and Stalled say the same as these, once more."""

_LISTED: Final = 4
"""Most things that a message names."""
_WARNINGS: Final = frozenset(PROBLEMS) | frozenset(NoPlanReason)


@dataclass(frozen=True)
class Finding:
    """What was concluded about one condition."""

    type: ConditionType
    status: ConditionStatus | bool
    reason: str
    message: str


def with_findings(
    conditions: Iterable[Condition], findings: Iterable[Finding], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """`conditions` with all findings set."""
    result = tuple(conditions)
    for found in findings:
        result = set_condition(
            result,
            found.type,
            found.status,
            reason=str(found.reason),
            message=found.message,
            generation=generation,
            now=timestamp(now),
        )
    return result


def progress_findings(ready: Finding, stalled: bool, reconciling: bool) -> tuple[Finding, Finding, Finding]:
    """Ready, and Stalled and Reconciling (kstatus) to go with it, with its reason and message."""
    return (
        ready,
        _like(ready, ConditionType.STALLED, stalled, "Nobody has to act."),
        _like(ready, ConditionType.RECONCILING, reconciling, "Nothing is under way."),
    )


def _like(ready: Finding, type: ConditionType, applies: bool, otherwise: str) -> Finding:
    if applies:
        return Finding(type, True, ready.reason, ready.message)
    return Finding(type, False, Reason.SETTLED, otherwise)


def events_of(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Event, ...]:
    """One event for each reason that a condition worth it has newly become true or met a problem.

    A condition that is not true yet for no problem is only on its way. Where several give one reason, Ready speaks.
    """
    old = {c.type: (c.status, c.reason) for c in before}
    events: dict[str, Event] = {}
    for found in sorted(after, key=lambda c: c.type != ConditionType.READY):
        if found.type not in WORTH_AN_EVENT or old.get(found.type) == (found.status, found.reason):
            continue
        if found.status == ConditionStatus.TRUE:
            events.setdefault(found.reason, Event(EventType.NORMAL, found.reason, found.message))
        elif found.reason in _WARNINGS:
            events.setdefault(found.reason, Event(EventType.WARNING, found.reason, found.message))
    return tuple(events.values())


def condition(conditions: Iterable[Condition], type: ConditionType) -> Condition | None:
    """The condition of `type`, if it is there."""
    return next((c for c in conditions if c.type == type), None)


def seconds_in_state(conditions: Iterable[Condition], type: ConditionType, now: datetime) -> float:
    """For how long the condition of `type` has had its status; 0 if it is not there."""
    found = condition(conditions, type)
    return 0.0 if found is None else seconds_since(found.last_transition_time, now)


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """The first few things, for a message, and how many more there are."""
    more = f"{separator}and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return separator.join(items[:_LISTED]) + more
