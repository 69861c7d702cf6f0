"""Goodput of one model on eight GPUs, deferred against eager batching, as in Symphony's Table 2.

ResNet50 (1.053 b + 5.072 ms) with an SLO of 25 ms and InceptionResNetV2 (5.090 b + 18.368 ms) with 70 ms, Poisson
arrivals, 8 emulated GPUs; at the bisected goodput at least 99 % of the requests are in time, for every seed. The last
line is a summary in JSON.

    python benchmarks/goodput_quick.py [--seconds 20] [--seeds 3]
"""

import argparse
import json
import time
from dataclasses import dataclass

from partita_api.inferencesession import ArrivalProcess, BatchingPolicy, InferenceSessionSpec
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.search import goodput
from partita_runtime.simulation.simulate import simulate_scheduling

GPUS = 8


@dataclass(frozen=True)
class Case:
    """A model of Symphony's Table 2, and what the paper has for it (requests per second)."""

    model: str
    alpha_micros: int
    beta_micros: int
    slo_ms: int
    batch_size: int
    bound: int
    symphony: int
    shepherd: int
    nexus: int

    def session(self) -> InferenceSessionSpec:
        """A session of this one model."""
        return InferenceSessionSpec.model_validate(
            {
                "slo": {"latencyMs": self.slo_ms},
                "rate": {"requestsPerSecond": self.bound},
                "modules": [{"name": "model", "model": {"entrypoint": "m:f"}, "input": {"shape": [3, 224, 224]}}],
            }
        )

    def plan(self, policy: BatchingPolicy) -> SchedulingPlan:
        """All GPUs in one pool, with the batch size of staggered execution (Symphony, equations 1 and 2)."""
        latency = tuple(self.alpha_micros * b + self.beta_micros for b in range(1, self.batch_size + 1))
        stage = ScheduledStage(
            pool="gpu", first_block=0, end_block=1, vgpu_divisor=1, replicas=GPUS, latency_micros=latency
        )
        pipeline = ScheduledPipeline(name="a", batch_size=self.batch_size, stages=(stage,))
        module = ScheduledModule(
            name="model", budget_micros=self.slo_ms * 1000, downstream_micros=0, pipelines=(pipeline,)
        )
        return SchedulingPlan(name=self.model, policy=policy, modules=(module,))


CASES = (
    Case("ResNet50", 1053, 5072, 25, 16, 5839, 5264, 4445, 4027),
    Case("InceptionResNetV2", 5090, 18368, 70, 8, 1083, 926, 778, 618),
)


def run(case: Case, policy: BatchingPolicy, rate: float, seconds: float, seed: int) -> SimulationReport:
    """One simulation."""
    arrivals = arrivals_at(ArrivalProcess.POISSON, rate)
    return simulate_scheduling(case.session(), case.plan(policy), arrivals, seconds, seed)


def measure(case: Case, policy: BatchingPolicy, seconds: float, seeds: int) -> dict[str, float]:
    """Goodput, and what happens at one and a half times the bound."""
    best = goodput(
        lambda rate: min(run(case, policy, rate, seconds, seed).attainment for seed in range(1, seeds + 1)),
        at_most=1.1 * case.bound,
        precision=0.002,
    )
    overload = run(case, policy, 1.5 * case.bound, seconds, 1)
    return {"goodput": round(best, 1), "share_of_bound": round(best / case.bound, 3), "overload": overload.goodput}


def main() -> None:
    """Measure all cases under both policies."""
    parser = argparse.ArgumentParser(description="Goodput of deferred and eager batching, side by side.")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of arrivals of each run")
    parser.add_argument("--seeds", type=int, default=3, help="runs at each rate; the worst counts")
    arguments = parser.parse_args()
    summary: dict[str, dict[str, object]] = {}
    print(f"{'model':20}{'policy':10}{'goodput':>9}{'of bound':>10}{'at 1.5x':>9}   bound  Symphony  Shepherd  Nexus")
    for case in CASES:
        results: dict[str, object] = {}
        for policy in (BatchingPolicy.DEFERRED, BatchingPolicy.EAGER):
            began = time.perf_counter()
            found = measure(case, policy, arguments.seconds, arguments.seeds)
            results[policy.value] = {**found, "took_seconds": round(time.perf_counter() - began, 1)}
            print(
                f"{case.model:20}{policy.value:10}{found['goodput']:9.0f}{found['share_of_bound']:10.1%}"
                f"{found['overload']:9.0f}{case.bound:8}{case.symphony:10}{case.shepherd:10}{case.nexus:7}",
                flush=True,
            )
        summary[case.model] = results
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
