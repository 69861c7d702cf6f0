"""PARIS and ELSA on unequal MIG slices, beside first-idle-first-serve on equal ones (their sections V and VI)."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from benchmarks.goodput_cases.measure import Effort, Model, Row, say
from numpy.typing import NDArray

from partita_api.inferencesession import ArrivalProcess
from partita_planner.deadline import Deadline
from partita_planner.mig.packing import Packing
from partita_planner.mig.paris import SliceCurve, paris, placed
from partita_planner.mig.products import known_products
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.search import goodput
from partita_runtime.simulation.streams import Stream, simulate_streams

GPUS = 8
LARGEST = 32
SLA_FACTOR = 2.0
COMPUTE = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "7g.40gb": 7}
PER_GPU = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "7g.40gb": 1}
MODELS = (
    Model("MobileNet", 0.285, 1.901, 0),
    Model("ResNet50", 0.268, 5.172, 0),
    Model("BERT", 7.353, 0.222, 0),
)
"""On a whole A100 (Symphony, Table 4); on g of 7 compute slices the part that grows with the batch takes 7 / g."""


def slices(effort: Effort) -> Sequence[Row]:
    """Queries of 1 to 32 samples on 8 A100: 95 % within twice the time of the largest query on a whole GPU."""
    rows = []
    for model in MODELS:
        equal = {
            f"GPU({COMPUTE[name]})+FIFS": _throughput(model, {name: GPUS * PER_GPU[name]}, "Fifs", effort)
            for name in COMPUTE
        }
        cut = _paris(model)
        ours = _throughput(model, cut, "Elsa", effort)
        found = {"PARIS+ELSA": ours, "PARIS+FIFS": _throughput(model, cut, "Fifs", effort), **equal}
        whole, best = equal["GPU(7)+FIFS"], max(equal.values())
        say(f"  {model.name}: PARIS cuts {dict(cut)}")
        for name, rate in found.items():
            paper = "on average 1.7 x GPU(7), 1.1 x the best equal slices" if name == "PARIS+ELSA" else ""
            figures = {
                "queries_per_second": round(rate, 1),
                "to_gpu7": round(rate / whole, 2),
                "to_best_equal": round(rate / best, 2),
            }
            rows.append(Row(f"{model.name}, 8 A100", name, figures, paper))
    return rows


def query_sizes(count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Log-normal sizes from 1 to 32: median 8, sigma 0.9."""
    return np.clip(np.rint(generator.lognormal(np.log(8), 0.9, count)), 1, LARGEST).astype(np.int64)


def _latency_ms(model: Model, name: str, batch: int) -> float:
    return model.beta_ms + model.alpha_ms * batch * 7 / COMPUTE[name]


def _paris(model: Model) -> Mapping[str, int]:
    """The slices that PARIS makes of the GPUs for this model and these queries."""
    drawn = query_sizes(100_000, np.random.default_rng(0))
    distribution = {size: float(np.mean(drawn == size)) for size in range(1, LARGEST + 1)}
    curves = [
        SliceCurve(
            name,
            {b: 1 - model.beta_ms / _latency_ms(model, name, b) for b in range(1, LARGEST + 1)},
            {b: 1000 / _latency_ms(model, name, b) for b in range(1, LARGEST + 1)},
        )
        for name in COMPUTE
    ]
    product = known_products().product("A100-40GB")
    answer = placed(product, paris(product, curves, distribution, GPUS), GPUS, Deadline.after(10, time.perf_counter))
    if not isinstance(answer, Packing):
        raise SystemExit(f"PARIS found no slices for {model.name}: {answer.message}")
    return {name: sum(n for (_, cut), n in answer.instances.items() if cut == name) for name in COMPUTE}


def _throughput(model: Model, cut: Mapping[str, int], policy: str, effort: Effort) -> float:
    """The highest rate of queries with 95 % in time."""
    sla_ms = SLA_FACTOR * _latency_ms(model, "7g.40gb", LARGEST)
    pipelines = tuple(
        ScheduledPipeline(name=name, batch_size=LARGEST, stages=(_stage(model, name, count),))
        for name, count in cut.items()
        if count
    )
    module = ScheduledModule(
        name=model.name, budget_micros=round(1000 * sla_ms), downstream_micros=0, pipelines=pipelines
    )
    plan = SchedulingPlan(name="slices", policy=policy, modules=(module,))

    def worst(rate: float) -> float:
        stream = Stream(model.name, arrivals_at(ArrivalProcess.POISSON, rate), sla_ms, query_sizes)
        return min(
            simulate_streams(plan, [stream], effort.seconds, seed)[model.name].attainment for seed in effort.seeds
        )

    mean = float(np.mean(query_sizes(100_000, np.random.default_rng(0))))
    bound = sum(1000 * count / _latency_ms(model, name, round(mean)) for name, count in cut.items())
    return goodput(worst, bound, target=0.95, precision=effort.precision)


def _stage(model: Model, name: str, count: int) -> ScheduledStage:
    return ScheduledStage(
        pool=name,
        first_block=0,
        end_block=1,
        vgpu_divisor=1,
        replicas=count,
        latency_micros=tuple(round(1000 * _latency_ms(model, name, b)) for b in range(1, LARGEST + 1)),
    )
