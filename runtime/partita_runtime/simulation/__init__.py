"""Discrete-event simulation of a plan: the scheduling core of production on a virtual clock with emulated workers.

It needs neither Kubernetes nor Ray nor torch. May import `autoscaling`, `figures`, `load.arrivals`, `scheduling`,
`serving.session` and `serving.telemetry`.

One model on two GPUs, with 300 requests per second and an SLO of 25 ms:

    >>> from partita_runtime.scheduling import one_model_plan
    >>> from partita_runtime.simulation import RequestStream, arrivals_at, goodput, simulate_streams
    >>> plan = one_model_plan("detector", latency_ms=[6, 7, 8, 9], gpus=2)
    >>> stream = RequestStream("detector", arrivals_at("Poisson", 300), slo_ms=25)
    >>> report = simulate_streams(plan, [stream], seconds=10, seed=0)["detector"]
    >>> report.attainment
    1.0

The highest rate of which 99 % is answered in time; 889 requests per second is the upper bound of 2 * 4 / 9 ms:

    >>> def attainment(rate: float) -> float:
    ...     stream = RequestStream("detector", arrivals_at("Poisson", rate), slo_ms=25)
    ...     return simulate_streams(plan, [stream], seconds=10, seed=0)["detector"].attainment
    >>> 700 < goodput(attainment, at_most=889, precision=0.05) < 889
    True

A planned session at its declared rate for 60 s: `simulate(session, outcome.plan, problem.profiles)`, where `problem`
is a `PlanningProblem` and `outcome` is the result of `partita_planner.planning.plan` for it.
"""

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
