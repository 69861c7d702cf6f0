"""Requests in time if the real network is slower than declared: with feedback of transfers, and without."""

from collections.abc import Sequence
from statistics import mean

from benchmarks.scheduling.goodput_cases.measure import Effort, Row, say
from benchmarks.scheduling.goodput_cases.pooled import PROCESSES, scheduling_plan, spread_out
from benchmarks.scheduling.system_cases.configurations import Configuration, large

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.emulation.network import Contention
from partita_runtime.simulation.streams import RequestStream, simulate_streams

LOAD = 0.7
"""Share of the planned throughput that arrives."""
MISSING = (0.0, 0.5, 0.8)
"""Shares of the declared bandwidth that the network lacks."""


class WithoutFeedback(SchedulingCore):
    """A core to which the declared bandwidth counts."""

    def transferred(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """Transfers change nothing."""


def wrong_bandwidth(effort: Effort) -> Sequence[Row]:
    """Share in time on PPipe's plans, beside that with the right declaration."""
    if effort.data is None:
        say("wrong-bandwidth needs --data; left out")
        return []
    plans = large(effort.data / "ppipe")[:: 3 if effort.quick else 1]
    rows = []
    for together in (False, True):
        for missing in MISSING:
            shares = [_shares(configuration, Contention(together, missing), effort) for configuration in plans]
            without, with_feedback, right = (mean(kind) for kind in zip(*shares, strict=True))
            figures = {"without": round(100 * without, 1), "with": round(100 * with_feedback, 1)}
            figures |= {"declared": round(100 * right, 1), "of_declared": round(100 * with_feedback / right, 1)}
            figures |= {"least_of_declared": round(100 * min(own / best for _, own, best in shares), 1)}
            sharing = "at once" if together else "in turn"
            rows.append(Row(f"{len(plans)} plans, transfers {sharing}", f"{1 - missing:g} of declared", figures))
            say(f"  {sharing} {1 - missing:g} {figures}")
    return rows


def _shares(configuration: Configuration, network: Contention, effort: Effort) -> tuple[float, float, float]:
    """In time: without feedback, with feedback, and with the right declaration."""
    reference = configuration.reference
    plan = scheduling_plan(reference, "Deferred", configuration.profiles)
    real = {pool: bandwidth * (1 - network.others) for pool, bandwidth in plan.bandwidth.items()}
    right = plan.model_copy(update={"bandwidth": real})

    def in_time(plan: SchedulingPlan, core: SchedulingCore, network: Contention) -> float:
        streams = [
            RequestStream(
                of["model"], PROCESSES["Poisson"](LOAD * of["throughput"], 0.0), configuration.slos[of["model"]] / 1000
            )
            for of in reference["plan"]
        ]
        placed = spread_out(plan, reference["pools"])
        reports = simulate_streams(
            plan, streams, effort.seconds, effort.seeds[0], placed=placed, contention=network, core=core
        ).values()
        return sum(report.in_time for report in reports) / sum(report.offered for report in reports)

    return (
        in_time(plan, WithoutFeedback(plan), network),
        in_time(plan, SchedulingCore(plan), network),
        in_time(right, SchedulingCore(right), Contention(network.together)),
    )
