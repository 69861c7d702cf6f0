"""The Python SDK: builds, validates, plans, applies and calls sessions, for notebooks and scripts.

Users import it, and no other package. May import `partita_api`, `partita_operator`, `partita_planner` and
`partita_runtime`.

A session is built, validated and planned without a cluster, and without torch:

>>> import partita
>>> session = partita.Session("shop", slo_ms=200, requests_per_second=50)
>>> session.add_model("classifier", entrypoint="shop.models:classifier", input=partita.Tensor([3, 96, 96]))
Session('shop': classifier)
>>> session.validate()
>>> pools = [partita.pool("a100", count=4, price_per_hour=3), partita.pool("t4", count=8, price_per_hour=0.35)]
>>> milliseconds = {"classifier": {"a100": {1: 2, 8: 6}, "t4": {1: 8, 8: 40}}}
>>> plan = session.plan(pools=pools, profiles=session.assumed_profiles(milliseconds))
>>> plan.gpus, plan.cost_per_hour
({'t4': 1}, 0.35)

A `Cluster` is needed to serve it: `session.apply()`, `session.wait()`, `session.infer({"input": images})`.
"""

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
