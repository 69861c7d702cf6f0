"""Sessions as rows: their state, their SLO and what was measured; filtered, and page by page."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from partita_api.conditions import ConditionStatus, ConditionType, is_true
from partita_api.inferencesession import InferenceSession
from partita_operator.console.views.findings import Tone
from partita_operator.reconcile.findings import condition
from partita_operator.reconcile.reasons import Reason, is_problem

PAGE_SIZE: Final = 50
LONGEST_TEXT: Final = 200
"""Characters of a search; names are shorter."""


class SessionState(StrEnum):
    """What a platform engineer looks for first."""

    ACTION_NEEDED = "action needed"
    SLO_MISSED = "SLO missed"
    IN_PROGRESS = "in progress"
    HELD = "held"
    SCALED_TO_ZERO = "scaled to zero"
    SERVING = "serving"

    @property
    def tone(self) -> Tone:
        """How it looks."""
        return _TONES[self]


_TONES: Final[Mapping[SessionState, Tone]] = {
    SessionState.ACTION_NEEDED: Tone.BAD,
    SessionState.SLO_MISSED: Tone.BAD,
    SessionState.IN_PROGRESS: Tone.WAITING,
    SessionState.HELD: Tone.WAITING,
    SessionState.SCALED_TO_ZERO: Tone.QUIET,
    SessionState.SERVING: Tone.GOOD,
}


class QueryError(ValueError):
    """A part of an address that cannot be used; the message says what it may be."""


@dataclass(frozen=True)
class SessionQuery:
    """Which sessions a page shows."""

    text: str = ""
    """A part of namespace/name."""
    namespace: str = ""
    state: SessionState | None = None
    page: int = 1

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Self:
        """The query of an address. Raises QueryError."""
        page = parameters.get("page", "1")
        if not page.isascii() or not page.isdigit() or not 1 <= int(page[:7]) < 10**6:
            raise QueryError("page must be a number from 1 to 999999")
        state = parameters.get("state", "")
        if state and state not in list(SessionState):
            raise QueryError(f"state must be one of: {', '.join(SessionState)}")
        text = parameters.get("q", "").strip()
        if len(text) > LONGEST_TEXT:
            raise QueryError(f"q must have at most {LONGEST_TEXT} characters")
        return cls(text, parameters.get("namespace", ""), SessionState(state) if state else None, int(page))


@dataclass(frozen=True)
class SessionRow:
    """One session. None is unknown."""

    namespace: str
    name: str
    state: SessionState
    reason: str
    """Why it is in this state: the reason of a condition."""
    slo_ms: int
    target: float
    """The share of requests that must be answered in time."""
    attainment: float | None
    """The share that was, over the last window."""
    p99_ms: float | None
    offered_rate: float | None
    planned_rate: float
    cost_per_hour: float | None
    plan: str | None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def misses_target(self) -> bool:
        """Whether too few requests were answered in time."""
        return self.attainment is not None and self.attainment < self.target


@dataclass(frozen=True)
class SessionsPart:
    """The sessions of one page, and what leads to the others."""

    rows: tuple[SessionRow, ...]
    query: SessionQuery
    total: int
    """Sessions that may be read."""
    matching: int
    pages: int
    states: tuple[tuple[SessionState, int], ...]
    """How many sessions of the namespace and the text are in each state."""
    namespaces: tuple[str, ...]


def sessions_part(sessions: Iterable[InferenceSession], query: SessionQuery) -> SessionsPart:
    """The page of sessions that the query asks for; the last page if it has fewer."""
    rows = sorted((session_row(session) for session in sessions), key=lambda row: row.key)
    found = [row for row in rows if query.namespace in ("", row.namespace) and query.text in row.key]
    counts = Counter(row.state for row in found)
    matching = [row for row in found if query.state in (None, row.state)]
    pages = max(1, -(-len(matching) // PAGE_SIZE))
    begin = (min(query.page, pages) - 1) * PAGE_SIZE
    return SessionsPart(
        rows=tuple(matching[begin : begin + PAGE_SIZE]),
        query=SessionQuery(query.text, query.namespace, query.state, min(query.page, pages)),
        total=len(rows),
        matching=len(matching),
        pages=pages,
        states=tuple((state, counts[state]) for state in SessionState if counts[state] or state == query.state),
        namespaces=tuple(sorted({row.namespace for row in rows})),
    )


def session_row(session: InferenceSession) -> SessionRow:
    """The session as a row."""
    status, signals = session.status, session.status.signals
    state, reason = session_state(session)
    measured = signals is not None and float(signals.offered_rate) > 0
    return SessionRow(
        namespace=session.namespace,
        name=session.metadata.name,
        state=state,
        reason=reason,
        slo_ms=session.spec.slo.latency_ms,
        target=session.spec.slo.attainment.fraction,
        attainment=1 - float(signals.bad_rate) if signals is not None and measured else None,
        p99_ms=float(signals.p99_ms) if signals is not None and measured else None,
        offered_rate=float(signals.offered_rate) if signals is not None else None,
        planned_rate=float(status.planned_rate or session.spec.rate.requests_per_second),
        cost_per_hour=float(status.current_plan.cost_per_hour) if status.current_plan is not None else None,
        plan=status.current_plan.name if status.current_plan is not None else None,
    )


def session_state(session: InferenceSession) -> tuple[SessionState, str]:
    """The state of a session, and the reason of the condition that says so."""
    conditions, status = session.status.conditions, session.status
    ready = condition(conditions, ConditionType.READY)
    held = condition(conditions, ConditionType.HELD)
    slo = condition(conditions, ConditionType.SLO_MET)
    if ready is None or status.observed_generation < session.metadata.generation:
        return SessionState.IN_PROGRESS, "not seen by the operator"
    if is_true(conditions, ConditionType.STALLED) or (
        ready.status != ConditionStatus.TRUE and is_problem(ready.reason)
    ):
        return SessionState.ACTION_NEEDED, ready.reason
    if held is not None and held.status == ConditionStatus.TRUE:
        return SessionState.HELD, held.reason
    if ready.status != ConditionStatus.TRUE:
        return SessionState.IN_PROGRESS, ready.reason
    if ready.reason == Reason.SCALED_TO_ZERO:
        return SessionState.SCALED_TO_ZERO, ready.reason
    if slo is not None and slo.status == ConditionStatus.FALSE:
        return SessionState.SLO_MISSED, slo.reason
    return SessionState.SERVING, ready.reason
