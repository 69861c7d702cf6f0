"""Profiles, pools and a session in; a plan out. Pure: no I/O, and equal inputs give equal plans.

May import `partita_api`. A plan takes five lines, without Kubernetes, Ray or torch:

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

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
