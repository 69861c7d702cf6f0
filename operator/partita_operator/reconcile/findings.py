"""The conditions that the reconcilers conclude, and the events for their changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from partita_api.conditions import Condition, ConditionStatus, ConditionType, set_condition
from partita_operator.reconcile.actions import Event
from partita_operator.reconcile.clock import seconds_since, timestamp
from partita_operator.reconcile.reasons import Reason, Severity, severity_of

CONDITIONS_WITH_EVENTS: Final = frozenset(
    {
        ConditionType.READY,
        ConditionType.PROFILED,
        ConditionType.PLANNED,
        ConditionType.ROLLED_OUT,
        ConditionType.SLO_MET,
        ConditionType.HELD,
        ConditionType.EXPOSED,
        ConditionType.CLIENTS_AUTHENTICATED,
        ConditionType.VERSIONS_READY,
        ConditionType.QUALITY_MET,
        ConditionType.PARTITIONED,
        ConditionType.PROVISIONED,
    }
)
"""Reconciling and Stalled repeat the reasons of these."""

_LISTED: Final = 4
"""Most items that a message lists."""


@dataclass(frozen=True)
class Finding:
    """The new state of one condition."""

    type: ConditionType
    status: ConditionStatus | bool
    reason: str
    message: str


def with_findings(
    conditions: Iterable[Condition], findings: Iterable[Finding], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """`conditions` with all findings applied."""
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
    """Ready, and the kstatus conditions Stalled and Reconciling with the same reason and message."""
    return (
        ready,
        _like(ready, ConditionType.STALLED, stalled, "No action needed."),
        _like(ready, ConditionType.RECONCILING, reconciling, "Nothing is in progress."),
    )


def _like(ready: Finding, type: ConditionType, applies: bool, otherwise: str) -> Finding:
    if applies:
        return Finding(type, True, ready.reason, ready.message)
    return Finding(type, False, Reason.SETTLED, otherwise)


def events_of(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Event, ...]:
    """One event for each reason for which a condition became true, or that is a warning and became the reason.

    Where several conditions give the same reason, the event has the message of Ready.
    """
    old = {c.type: (c.status, c.reason) for c in before}
    events: dict[str, Event] = {}
    for found in sorted(after, key=lambda c: c.type != ConditionType.READY):
        if found.type not in CONDITIONS_WITH_EVENTS or old.get(found.type) == (found.status, found.reason):
            continue
        if found.status == ConditionStatus.TRUE:
            events.setdefault(found.reason, Event(Severity.NORMAL, found.reason, found.message))
        elif severity_of(found.reason) is Severity.WARNING:
            events.setdefault(found.reason, Event(Severity.WARNING, found.reason, found.message))
    return tuple(events.values())


def condition(conditions: Iterable[Condition], type: ConditionType) -> Condition | None:
    """The condition of `type`; None if it is not set."""
    return next((c for c in conditions if c.type == type), None)


def seconds_in_state(conditions: Iterable[Condition], type: ConditionType, now: datetime) -> float:
    """Seconds since the status of the condition of `type` changed; 0 if it is not set."""
    found = condition(conditions, type)
    return 0.0 if found is None else seconds_since(found.last_transition_time, now)


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """The first few items, for a message, and how many more there are."""
    more = f"{separator}and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return separator.join(items[:_LISTED]) + more
