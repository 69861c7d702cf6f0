"""Goodput with execution times that spread around the profile."""

from collections.abc import Sequence

from benchmarks.scheduling.goodput_cases.measure import Effort, Row

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.noise import Noise
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.streams import RequestStream, simulate_streams

SLO_MS = 40.0
BATCH = 4
POLICIES = ("Deferred", "Eager", "Clockwork")
SPREADS = (0.0, 0.1, 0.2, 0.3)
STAGES = {
    "one stage": (("slow", 5, 1000, 2000),),
    "two stages": (("fast", 3, 500, 1000), ("slow", 5, 1000, 2000)),
}
"""Pool, replicas, and microseconds alpha b + beta of a batch of b; the slow stage limits both to 3333 requests/s."""
AT_MOST = 3600.0


def varying(effort: Effort) -> Sequence[Row]:
    """Requests/s with 99 % in time, by the spread of execution times."""
    rows = []
    for case, stages in STAGES.items():
        for policy in POLICIES:
            figures = {f"spread_{spread:g}": round(_goodput(stages, policy, spread, effort)) for spread in SPREADS}
            rows.append(Row(f"{case}, SLO {SLO_MS:g} ms", policy, figures))
    return rows


def _goodput(stages: Sequence[tuple[str, int, int, int]], policy: str, spread: float, effort: Effort) -> float:
    plan = _plan(stages, policy)

    def worst(rate: float) -> float:
        stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, rate, 1.0), SLO_MS)
        noise = Noise(spread=spread)
        return min(
            simulate_streams(plan, [stream], effort.seconds, seed, noise=noise)["m"].attainment for seed in effort.seeds
        )

    return goodput(worst, AT_MOST, precision=effort.precision)


def _plan(stages: Sequence[tuple[str, int, int, int]], policy: str) -> SchedulingPlan:
    scheduled = tuple(
        ScheduledStage(
            pool=pool,
            first_block=number,
            end_block=number + 1,
            vgpu_divisor=1,
            replicas=replicas,
            latency_micros=tuple(alpha * b + beta for b in range(1, BATCH + 1)),
        )
        for number, (pool, replicas, alpha, beta) in enumerate(stages)
    )
    pipeline = ScheduledPipeline(name="a", batch_size=BATCH, stages=scheduled)
    budget = round(1000 * SLO_MS)
    module = ScheduledModule(name="m", budget_micros=budget, downstream_micros=0, pipelines=(pipeline,))
    return SchedulingPlan(name="varying", policy=policy, modules=(module,))
