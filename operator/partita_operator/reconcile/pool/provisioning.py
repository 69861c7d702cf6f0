"""How an elastic pool waits for its nodes: what is pending, for how long, and when plans do without it.

Plans may use `elastic.maxCount` accelerators. Pods of absent ones stay pending until a node autoscaler brings nodes. If
none comes in time, plans use only present accelerators for a while, and after that the pool tries again. All of this
is in the status, so a restart of the operator changes nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.gpupool import GPUPool
from partita_api.pool.elastic import Elastic, ElasticStatus
from partita_operator.reconcile import commands
from partita_operator.reconcile.clock import seconds_since, timestamp
from partita_operator.reconcile.findings import Finding
from partita_operator.reconcile.pool.accelerator_count import Count
from partita_operator.reconcile.reasons import Reason

_GROWING: Final = frozenset({Reason.AVAILABLE, Reason.NO_NODES, Reason.NO_ACCELERATORS})
"""Counts that nodes can change. Any other one is a problem that no node solves."""


@dataclass(frozen=True)
class Provisioning:
    """What plans may use of a pool, and what they wait for."""

    count: Count
    """The count with the capacity for plans."""
    status: ElasticStatus | None = None
    finding: Finding | None = None
    """The condition Provisioned; None if nothing is known of it."""


def provisioning(pool: GPUPool, found: Count, claimed: int, now: datetime) -> Provisioning:
    """The state of the pool whose nodes offer `found`, and of which sessions use `claimed` accelerators.

    A pool that is not elastic has the capacity that was found.
    """
    elastic, before = pool.spec.elastic, pool.status.elastic
    if elastic is None:
        return Provisioning(found, before if found.reason is Reason.INVALID_SPEC else None)
    if found.reason not in _GROWING:
        return Provisioning(found, before)
    status = _status(elastic, before or ElasticStatus(present=found.capacity), found.capacity, claimed, now)
    return Provisioning(_count(elastic, found, status), status, _finding(pool, elastic, found, status, claimed, now))


def _status(elastic: Elastic, before: ElasticStatus, present: int, claimed: int, now: datetime) -> ElasticStatus:
    pending = max(0, claimed - present)
    came = present > before.present
    arrived = came and before.pending_since is not None
    since = (before.pending_since or timestamp(now)) if pending else None
    back_off = None if came else _still_to_come(before.back_off_until, elastic.back_off_seconds, now)
    if before.back_off_until is not None and back_off is None and pending:
        since = timestamp(now)  # after the pause the pool waits again for the whole time
    status = ElasticStatus(
        present=present,
        pending=pending,
        max_count=elastic.max_count,
        pending_since=since,
        last_arrival_time=timestamp(now) if arrived else before.last_arrival_time,
        keep_until=_still_to_come(
            timestamp(now + timedelta(seconds=elastic.keep_seconds)) if arrived else before.keep_until,
            elastic.keep_seconds,
            now,
        ),
        back_off_until=back_off,
        measured_provision_seconds=_measured(before, now) if arrived else before.measured_provision_seconds,
    )
    if back_off is None and elastic.back_off_seconds and _is_overdue(elastic, status, now):
        return status.model_copy(
            update={"back_off_until": timestamp(now + timedelta(seconds=elastic.back_off_seconds))}
        )
    return status


def _measured(before: ElasticStatus, now: datetime) -> int:
    """The mean of the last mean and of the time that the nodes that came now took."""
    took = seconds_since(before.pending_since or timestamp(now), now)
    known = before.measured_provision_seconds
    return round(took if known is None else (known + took) / 2)


def _still_to_come(end: str | None, most_seconds: int, now: datetime) -> str | None:
    """The end of a time that has not passed yet, at most so many seconds from now; None if it has passed."""
    if end is None:
        return None
    limited = min(datetime.fromisoformat(end), now + timedelta(seconds=most_seconds))
    return timestamp(limited) if limited > now else None


def _is_overdue(elastic: Elastic, status: ElasticStatus, now: datetime) -> bool:
    return status.pending > 0 and _deadline(elastic, status, now) <= now


def _deadline(elastic: Elastic, status: ElasticStatus, now: datetime) -> datetime:
    """When the wait for nodes ends without result, unless another node comes before."""
    began = [text for text in (status.pending_since, status.last_arrival_time) if text is not None]
    waited = min((seconds_since(text, now) for text in began), default=0.0)
    return now + timedelta(seconds=elastic.provision_timeout_seconds - waited)


def _count(elastic: Elastic, found: Count, status: ElasticStatus) -> Count:
    """The count with what plans may use."""
    capacity = found.capacity if status.back_off_until is not None else max(found.capacity, elastic.max_count)
    if capacity == 0:
        message = f"The pool has no accelerators, and requested nodes did not come. {_next_attempt(status)}"
        return replace(
            found, capacity=0, status=ConditionStatus.FALSE, reason=Reason.PROVISIONING_TIMED_OUT, message=message
        )
    message = f"Partita may use {capacity} accelerators, of which {found.capacity} are present."
    return replace(
        found,
        capacity=capacity,
        status=ConditionStatus.TRUE,
        reason=Reason.AVAILABLE,
        message=f"{message}{_note(found)}",
    )


def _note(found: Count) -> str:
    return f" {found.note}." if found.note else ""


def _finding(
    pool: GPUPool, elastic: Elastic, found: Count, status: ElasticStatus, claimed: int, now: datetime
) -> Finding:
    type, waiting = ConditionType.PROVISIONED, commands.waiting_pods(pool.metadata)
    if status.back_off_until is not None or _is_overdue(elastic, status, now):
        missing = f"{status.pending} accelerators that plans use" if status.pending else "the requested accelerators"
        message = (
            f"No node came for {missing} within {elastic.provision_timeout_seconds} s. {_next_attempt(status)} Check "
            f"the limits and instance types of the node autoscaler, and that its nodes have the labels "
            f"{pool.node_selector}. The pods that wait: {waiting}"
        )
        return Finding(type, False, Reason.PROVISIONING_TIMED_OUT, message)
    if status.pending:
        message = (
            f"{status.pending} of {claimed} accelerators that plans use are not present; their pods wait for nodes "
            f"since {status.pending_since}. If no node comes until {timestamp(_deadline(elastic, status, now))}, "
            f"{_afterwards(elastic)}.{_note(found)} The pods that wait: {waiting}"
        )
        return Finding(type, False, Reason.WAITING_FOR_NODES, message)
    return Finding(
        type, True, Reason.PROVISIONED, f"All {claimed} accelerators that plans use are present ({status.present})."
    )


def _afterwards(elastic: Elastic) -> str:
    if not elastic.back_off_seconds:
        return "the condition says so, and plans wait on"
    return f"plans use only present accelerators for {elastic.back_off_seconds} s"


def _next_attempt(status: ElasticStatus) -> str:
    if status.back_off_until is None:
        return "Plans wait on, because elastic.backOffSeconds is 0."
    return f"Until {status.back_off_until}, plans use only the {status.present} present ones."
