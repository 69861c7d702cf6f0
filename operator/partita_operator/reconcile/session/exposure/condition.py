"""The condition Exposed of a session that clients do not reach, or may not reach."""

from partita_api.conditions import ConditionStatus, ConditionType
from partita_operator.reconcile.findings import Finding
from partita_operator.reconcile.reasons import Reason


def not_exposed(reason: Reason, message: str) -> Finding:
    """Clients do not reach the session."""
    return Finding(ConditionType.EXPOSED, False, reason, message)


def unknown_exposure(reason: Reason, message: str) -> Finding:
    """Nobody has said yet whether clients reach the session."""
    return Finding(ConditionType.EXPOSED, ConditionStatus.UNKNOWN, reason, message)


def name_taken(kind: str, name: str) -> Finding:
    """An object of somebody else has the name of one that the session needs."""
    return not_exposed(
        Reason.NAME_TAKEN,
        f"{kind} {name} exists and does not belong to the session, so Partita leaves it as it is. Rename or delete "
        f"the {kind}, or create the session under another name.",
    )
