"""When what a session's status says of its traffic is worth writing anew.

No two measurements are alike, and a status that repeated each would be written at every look. So the status follows
what changes, and leaves what only fluctuates; the operator's metrics have every measurement.
"""

import re
from math import sqrt
from typing import Final

from partita_api.inferencesession import InferenceSession, Signals
from partita_api.quantity import Quantity
from partita_operator.reconcile.session.conditions import slo_met

MOVED: Final = 0.2
"""Share by which a rate or a latency has to differ to count as another one."""
FRACTION_MOVED: Final = 0.05
"""Difference of a bad rate or an idle fraction that counts; crossing the SLO's attainment always does."""
_SECONDS: Final = 10.0
"""About as long as a window: so many seconds' arrivals fluctuate by three times the root of their number."""
_FIGURES: Final = re.compile(r"\d+(\.\d+)?(?=%| s | requests? )")
"""Measured shares, the seconds left of a cool-down, and how many requests are held, within the autoscaler's words."""


def signals_to_report(session: InferenceSession, measured: Signals) -> Signals:
    """What the status should say: `measured`, or what it says already if that is not worth a change."""
    before = session.status.signals
    if before is None or _differ(session, before, measured):
        return measured
    return before


def _differ(session: InferenceSession, before: Signals, now: Signals) -> bool:
    rates = ((before.offered_rate, now.offered_rate), (before.goodput, now.goodput))
    latencies = ((before.p50_ms, now.p50_ms), (before.p99_ms, now.p99_ms))
    fractions = ((before.bad_rate, now.bad_rate), (before.idle_fraction, now.idle_fraction))
    return (
        any(_moved(old, new, 3 * sqrt(float(max(old.value, new.value)) / _SECONDS)) for old, new in rates)
        or any(_moved(old, new) for old, new in latencies)
        or any(abs(float(old) - float(new)) > FRACTION_MOVED for old, new in fractions)
        or slo_met(session, before).status != slo_met(session, now).status
        or _FIGURES.sub("", before.recommendation) != _FIGURES.sub("", now.recommendation)
    )


def _moved(old: Quantity, new: Quantity, noise: float = 0.0) -> bool:
    was, now = float(old), float(new)
    if (was == 0) != (now == 0):
        return True
    return abs(was - now) > max(MOVED * max(was, now), noise)
