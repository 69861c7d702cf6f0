"""Conditions with their meaning, and how serious they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from partita_api.conditions import Condition, ConditionStatus, ConditionType
from partita_operator.reconcile.reasons import is_problem, meaning_of


class Tone(StrEnum):
    """How something looks: a class of the style sheet."""

    GOOD = "good"
    WAITING = "waiting"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True)
class ConditionRow:
    """One condition of an object."""

    type: str
    meaning: str
    """What is the case while it is true."""
    status: str
    tone: Tone
    reason: str
    reason_meaning: str
    message: str
    since: str
    outdated: bool
    """Whether it is about an earlier generation of the spec."""


_MEANINGS: Final = {str(type): type.meaning for type in ConditionType}
_EXCEPTIONAL: Final = frozenset({ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.HELD})
"""Conditions that are false in the normal case."""


def condition_rows(conditions: Iterable[Condition], generation: int) -> tuple[ConditionRow, ...]:
    """The conditions: first those that are problems, then what is in progress, then the others."""
    rows = [
        ConditionRow(
            type=found.type,
            meaning=_MEANINGS.get(found.type, ""),
            status=str(found.status),
            tone=tone_of(found),
            reason=found.reason,
            reason_meaning=meaning_of(found.reason),
            message=found.message,
            since=found.last_transition_time,
            outdated=found.observed_generation < generation,
        )
        for found in conditions
    ]
    order = (Tone.BAD, Tone.WAITING, Tone.GOOD, Tone.QUIET)
    return tuple(sorted(rows, key=lambda row: (order.index(row.tone), row.type)))


def tone_of(condition: Condition) -> Tone:
    """How serious a condition is: a warning, something in progress, as desired, or nothing to see."""
    exceptional = condition.type in _EXCEPTIONAL
    match condition.status:
        case ConditionStatus.UNKNOWN:
            return Tone.BAD if is_problem(condition.reason) else Tone.QUIET
        case ConditionStatus.TRUE if not exceptional:
            return Tone.GOOD
        case ConditionStatus.FALSE if exceptional:
            return Tone.QUIET
        case _:
            return Tone.BAD if is_problem(condition.reason) else Tone.WAITING
