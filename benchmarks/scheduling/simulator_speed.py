"""Simulated requests per second of wall-clock time, from arrivals to report.

    python benchmarks/scheduling/simulator_speed.py [--requests 200000] [--repeats 3] [--profile]

One model on 8 and on 512 GPUs, and pooled pipelines of two stages on 100 GPUs of two classes, all at 80 % of their
capacity. The best repeat counts; on a busy machine use the figures of CPU time. The last line is a summary in JSON.
"""

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.scheduling.goodput_cases.measure import Model, shared

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling import core
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.placement import placements
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.streams import RequestStream, simulate_streams

LOAD = 0.8
RESNET50 = Model("ResNet50", 1.053, 5.072, 25)
POOLED_SLO_MS = 100
POOLED_BATCH = 8
GPUS_PER_NODE = 4


@dataclass(frozen=True)
class SimulationCase:
    """One case to simulate."""

    name: str
    rate: float
    """Requests per second of virtual time."""
    simulate: Callable[[float], SimulationReport]
    """(seconds of virtual time) -> report"""


def one_model(gpus: int) -> SimulationCase:
    """ResNet50, SLO 25 ms."""
    batch = RESNET50.staggered_batch(gpus)
    rate = LOAD * gpus * batch * 1000 / RESNET50.latency_ms(batch)
    deployment = shared([RESNET50], gpus, "Deferred")
    return SimulationCase(
        f"one model, {gpus} GPUs",
        rate,
        lambda seconds: deployment.run({RESNET50.name: rate}, seconds, 1)[RESNET50.name],
    )


def pooled() -> SimulationCase:
    """20 fast GPUs that feed 60 slow ones, and 20 fast ones alone: 8000 requests a second."""
    split = ScheduledPipeline(
        name="split",
        batch_size=POOLED_BATCH,
        stages=(_stage("fast", 20, (0, 6), 4.0, output_bytes=100_000), _stage("slow", 60, (6, 10), 12.0)),
    )
    whole = ScheduledPipeline(name="whole", batch_size=POOLED_BATCH, stages=(_stage("fast", 20, (0, 10), 20 / 3),))
    module = ScheduledModule(name="m", budget_micros=0, downstream_micros=0, pipelines=(split, whole))
    plan = SchedulingPlan(name="pooled", bandwidth={"fast": 10e9, "slow": 10e9}, modules=(module,))
    capacity = sum(
        min(s.replicas * p.batch_size * 1e6 / s.latency_micros[-1] for s in p.stages) for p in module.pipelines
    )
    stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, LOAD * capacity), POOLED_SLO_MS)
    placed = placements(plan, {"fast": GPUS_PER_NODE, "slow": GPUS_PER_NODE})
    return SimulationCase(
        "pooled pipelines, 100 GPUs",
        LOAD * capacity,
        lambda seconds: simulate_streams(plan, [stream], seconds, 1, placed=placed)["m"],
    )


def _stage(
    pool: str, replicas: int, blocks: tuple[int, int], full_batch_ms: float, output_bytes: int = 0
) -> ScheduledStage:
    """A stage whose time is one third constant and two thirds in proportion to the batch size."""
    return ScheduledStage(
        pool=pool,
        first_block=blocks[0],
        end_block=blocks[1],
        vgpu_divisor=1,
        replicas=replicas,
        latency_micros=tuple(
            round(1000 * full_batch_ms * (1 + 2 * b / POOLED_BATCH) / 3) for b in range(1, POOLED_BATCH + 1)
        ),
        output_bytes=output_bytes,
    )


def main() -> None:
    """Simulate, and print the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000, help="about how many to simulate in each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each case")
    parser.add_argument("--profile", action="store_true", help="also print a profile")
    options = parser.parse_args()
    compiled = not str(core.__file__).endswith(".py")
    summary = {}
    for case in (one_model(8), one_model(512), pooled()):
        found = []
        for _ in range(options.repeats):
            wall, cpu = time.perf_counter(), time.process_time()
            report = case.simulate(options.requests / case.rate)
            found.append((report.offered / (time.perf_counter() - wall), report.offered / (time.process_time() - cpu)))
        by_wall, by_cpu = (max(figures) for figures in zip(*found, strict=True))
        summary[case.name] = {
            "requests_per_wall_second": round(by_wall),
            "requests_per_cpu_second": round(by_cpu),
            "attainment": round(report.attainment, 4),
        }
        print(f"{case.name:28} {by_wall:9.0f}/s of wall clock {by_cpu:9.0f}/s of CPU time", flush=True)
        if options.profile:
            with cProfile.Profile() as profile:
                case.simulate(options.requests / case.rate)
            pstats.Stats(profile).sort_stats("tottime").print_stats(15)
    print(json.dumps({"requests": options.requests, "core_compiled": compiled, "cases": summary}))


if __name__ == "__main__":
    main()
