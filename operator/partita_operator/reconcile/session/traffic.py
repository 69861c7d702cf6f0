"""When a change of the measured traffic is large enough to update a session's status.

Measurements fluctuate, and a status with every measurement would be written in every pass. The status follows changes
and ignores fluctuations. The operator's metrics have every measurement.
"""

import re
from math import sqrt
from typing import Final

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import InferenceSession, Signals
from partita_operator.reconcile.session.conditions import slo_met

MOVED: Final = 0.2
"""Relative difference from which a rate or a latency counts as changed."""
FRACTION_MOVED: Final = 0.05
"""Difference from which a bad rate or an idle fraction counts as changed. So does crossing the attainment target."""
_SECONDS: Final = 10.0
"""About the length of a window. The arrivals in it vary by three times the square root of their number."""
_FIGURES: Final = re.compile(r"\d+(\.\d+)?(?=%| s | requests? )")
"""Numbers in the autoscaler's text that fluctuate: shares, seconds of a cool-down, requests that wait."""


def signals_to_report(session: InferenceSession, measured: Signals) -> Signals:
    """The signals for the status: `measured`, or the present ones if the difference is too small."""
    before = session.status.signals
    if before is None or _differ(session, before, measured):
        return measured
    return before


def _differ(session: InferenceSession, before: Signals, now: Signals) -> bool:
    rates = ((before.offered_rate, now.offered_rate), (before.goodput, now.goodput))
    endpoints = zip(before.endpoints, now.endpoints, strict=False)
    latencies = (
        (before.p50_ms, now.p50_ms),
        (before.p99_ms, now.p99_ms),
        *[pair for old, new in endpoints for pair in ((old.p50_ms, new.p50_ms), (old.p99_ms, new.p99_ms))],
    )
    fractions = ((before.bad_rate, now.bad_rate), (before.idle_fraction, now.idle_fraction))
    return (
        any(_moved(old, new, 3 * sqrt(float(max(old.value, new.value)) / _SECONDS)) for old, new in rates)
        or any(_moved(old, new) for old, new in latencies)
        or any(abs(float(old) - float(new)) > FRACTION_MOVED for old, new in fractions)
        or [each.module for each in before.endpoints] != [each.module for each in now.endpoints]
        or slo_met(session, before).status != slo_met(session, now).status
        or _FIGURES.sub("", before.recommendation) != _FIGURES.sub("", now.recommendation)
    )


def _moved(old: Quantity, new: Quantity, noise: float = 0.0) -> bool:
    was, now = float(old), float(new)
    if (was == 0) != (now == 0):
        return True
    return abs(was - now) > max(MOVED * max(was, now), noise)
