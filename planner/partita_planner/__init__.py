"""Profiles, pools and a session in; a plan out. Pure: no I/O, and equal inputs give equal plans.

May import `partita_api` only. A plan takes five lines, without Kubernetes, Ray or torch:

>>> from partita_planner import PlanningProblem, Pool, plan, validate
>>> pools = [Pool.priced("a100", 4, price_per_hour=3), Pool.priced("t4", 8, price_per_hour=0.5)]
>>> milliseconds = {"detector": {"a100": {1: 4, 8: 12}, "t4": {1: 12, 8: 64}}}
>>> problem = PlanningProblem.of_chain(milliseconds, pools, slo_ms=200, requests_per_second=500)
>>> outcome = plan(problem)
>>> outcome.plan.gpus(), validate(outcome.plan, problem)
({'t4': 5}, ())

`milliseconds` are the latencies of each module's batches, by pool and batch size. If there is no plan, `plan` returns a
`NoPlan` with the reason and the fix:

>>> print(plan(problem.with_rate(100_000)).reason)
InsufficientCapacity

Other questions: `partita_planner.mig` packs MIG slices, `partita_planner.subclusters` partitions models.
"""

from typing import TYPE_CHECKING

from partita_planner.exports import lazy_exports

if TYPE_CHECKING:
    from partita_planner.deadline import NEVER, Deadline, OutOfTimeError
    from partita_planner.explain.difference import Change, differences
    from partita_planner.planning import plan
    from partita_planner.prepartitioning import BadLayersError, prepartition
    from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem, Pool
    from partita_planner.several_sessions.joint import plan_jointly
    from partita_planner.several_sessions.offline import plan_offline, plan_offline_together
    from partita_planner.several_sessions.together import NotTogetherError, Together, plan_together
    from partita_planner.strategies import STRATEGIES
    from partita_planner.validation import validate

__all__ = [
    "NEVER",
    "STRATEGIES",
    "BadLayersError",
    "Change",
    "Deadline",
    "NoPlan",
    "NoPlanReason",
    "NotTogetherError",
    "OutOfTimeError",
    "Outcome",
    "Planned",
    "PlanningProblem",
    "Pool",
    "Together",
    "differences",
    "plan",
    "plan_jointly",
    "plan_offline",
    "plan_offline_together",
    "plan_together",
    "prepartition",
    "validate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(("NEVER", "Deadline", "OutOfTimeError"), "deadline"),
        **dict.fromkeys(("Change", "differences"), "explain.difference"),
        "plan": "planning",
        **dict.fromkeys(("BadLayersError", "prepartition"), "prepartitioning"),
        **dict.fromkeys(("NoPlan", "NoPlanReason", "Outcome", "Planned", "PlanningProblem", "Pool"), "problem"),
        "plan_jointly": "several_sessions.joint",
        **dict.fromkeys(("plan_offline", "plan_offline_together"), "several_sessions.offline"),
        **dict.fromkeys(("NotTogetherError", "Together", "plan_together"), "several_sessions.together"),
        "STRATEGIES": "strategies",
        "validate": "validation",
    },
)
