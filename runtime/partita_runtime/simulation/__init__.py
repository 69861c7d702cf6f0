"""Discrete-event simulation of a plan: the scheduling core of production on a virtual clock with emulated workers.

May import the rest of `partita_runtime` that is free of I/O: `scheduling`, `autoscaling`, `load.arrivals`, and the
waiting room of `serving`. It needs neither Kubernetes nor Ray nor torch.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from partita_runtime.simulation.arrivals import Arrivals as Arrivals
    from partita_runtime.simulation.arrivals import arrivals_at as arrivals_at
    from partita_runtime.simulation.arrivals import arrivals_from_trace as arrivals_from_trace
    from partita_runtime.simulation.arrivals import arrivals_of as arrivals_of
    from partita_runtime.simulation.emulation.noise import Delays as Delays
    from partita_runtime.simulation.emulation.noise import Noise as Noise
    from partita_runtime.simulation.load_search import goodput as goodput
    from partita_runtime.simulation.load_search import load_factor as load_factor
    from partita_runtime.simulation.report import SimulationReport as SimulationReport
    from partita_runtime.simulation.scaling import Scaling as Scaling
    from partita_runtime.simulation.simulator import simulate as simulate
    from partita_runtime.simulation.simulator import simulate_scheduling as simulate_scheduling
    from partita_runtime.simulation.streams import RequestStream as RequestStream
    from partita_runtime.simulation.streams import simulate_streams as simulate_streams
    from partita_runtime.simulation.trace_replay import replay as replay

_MODULES: Final = {
    "Arrivals": "arrivals",
    "Delays": "emulation.noise",
    "Noise": "emulation.noise",
    "RequestStream": "streams",
    "Scaling": "scaling",
    "SimulationReport": "report",
    "arrivals_at": "arrivals",
    "arrivals_from_trace": "arrivals",
    "arrivals_of": "arrivals",
    "goodput": "load_search",
    "load_factor": "load_search",
    "replay": "trace_replay",
    "simulate": "simulator",
    "simulate_scheduling": "simulator",
    "simulate_streams": "streams",
}
"""The module of each public name; it is imported with the first use of the name."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
