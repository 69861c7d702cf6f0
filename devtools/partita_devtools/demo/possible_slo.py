"""The SLO for a machine on which the example's models are too slow for the declared one."""

import math
from collections.abc import Sequence
from typing import Final

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.profile import Profile
from partita_planner.planning import plan
from partita_planner.problem import NoPlan
from partita_planner.several_sessions.offline import declared_capacity, offline_problem

SLO_FACTOR: Final = 1.5
"""Multiple of the smallest SLO with a plan, which would leave no time for anything that profiles do not show."""


def possible_slo_ms(session: InferenceSession, pools: Sequence[GPUPool], profiles: Sequence[Profile]) -> int | None:
    """An SLO with which the session has a plan on the declared pools, in milliseconds, whole hundreds.

    None if it has a plan with its own SLO, or with no SLO.
    """
    outcome = plan(offline_problem(pools, session, profiles, {p.metadata.name: declared_capacity(p) for p in pools}))
    if not isinstance(outcome, NoPlan) or outcome.smallest_slo_ms is None:
        return None
    return 100 * math.ceil(SLO_FACTOR * outcome.smallest_slo_ms / 100)
