"""PARIS and ELSA on unequal MIG slices, beside first-idle-first-serve on equal ones (their sections V and VI).

The paper has no table of its measurements, but says what followed from them (sections III-A, III-B, VI): the slices
that PARIS made of MobileNet's and BERT's (6, 4, 2, 1 and 0 of 1, 2, 3, 4 and 7 compute slices; 0, 0, 2, 2 and 4);
that GPU(3) is the best size for MobileNet and ResNet, where it carries 70 and 94 % of what PARIS does, and GPU(7) for
BERT; that at a batch of 8 MobileNet takes 23 % longer on GPU(1) than on GPU(3), which it uses about half as well;
that latency rises steeply only once utilization does not. So here a batch takes as long as one sample until it fills
the slice, and from then on time in proportion. One compute slice is filled by 6.5 samples of MobileNet (8 / 6.5 =
1.23), and by 3 of ResNet and 2 of BERT; queries are log-normal with median 8 and sigma 0.6, for which PARIS makes
about those slices. Of ShuffleNet and Conformer, which are in the paper's means, too, it only says that they are as
compute-intense as MobileNet and ResNet.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.scheduling.goodput_cases.measure import Effort, Row, say
from numpy.typing import NDArray

from partita_api.inferencesession import ArrivalProcess
from partita_planner.mig.demand import MigDemand, pack, pack_by_paris
from partita_planner.mig.packing import Packing
from partita_planner.mig.products import known_products
from partita_planner.solver.deadline import Deadline
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.streams import RequestStream, simulate_streams

GPUS = 8
LARGEST = 32
SLA_FACTOR = 2.0
COMPUTE = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "4g.20gb": 4, "7g.40gb": 7}
PER_GPU = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "7g.40gb": 1}
"""Of equal slices."""
FLOOR_MS = 4.0
"""Time of one sample on any slice; it does not affect the ratios."""


@dataclass(frozen=True)
class SlicedModel:
    """A model that fills one compute slice with this number of samples."""

    name: str
    samples_per_slice: float

    def latency_ms(self, name: str, batch: int) -> float:
        """Time of a batch on a kind of slice."""
        return FLOOR_MS * max(1.0, batch / (self.samples_per_slice * COMPUTE[name]))

    def utilization(self, name: str, batch: int) -> float:
        """Busy share of the slice with this batch."""
        return min(1.0, batch / (self.samples_per_slice * COMPUTE[name]))


MODELS = (SlicedModel("MobileNet", 6.5), SlicedModel("ResNet50", 3.0), SlicedModel("BERT", 2.0))


def slices(effort: Effort) -> Sequence[Row]:
    """Queries of 1 to 32 samples on 8 A100: 95 % within twice the time of the largest query on a whole GPU."""
    rows = []
    for model in MODELS:
        equal = {
            f"GPU({COMPUTE[name]})+FIFS": _throughput(model, {name: GPUS * PER_GPU[name]}, "Fifs", effort)
            for name in PER_GPU
        }
        cut, exact = _paris(model), _exact(model)
        found = {
            "exact+ELSA": _throughput(model, exact, "Elsa", effort),
            "PARIS+ELSA": _throughput(model, cut, "Elsa", effort),
            "PARIS+FIFS": _throughput(model, cut, "Fifs", effort),
            **equal,
        }
        whole, best = equal["GPU(7)+FIFS"], max(equal.values())
        say(f"  {model.name}: PARIS cuts {list(cut.values())} of {list(COMPUTE)}, partita mig {list(exact.values())}")
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
    """Log-normal sizes from 1 to 32: median 8, sigma 0.6."""
    return np.clip(np.rint(generator.lognormal(np.log(8), 0.6, count)), 1, LARGEST).astype(np.int64)


def _sla_ms(model: SlicedModel) -> float:
    return SLA_FACTOR * model.latency_ms("7g.40gb", LARGEST)


def _distribution() -> dict[int, float]:
    """The number of queries of each size; 0 is possible for rare sizes."""
    drawn = query_sizes(100_000, np.random.default_rng(0))
    return {size: float(np.mean(drawn == size)) for size in range(1, LARGEST + 1)}


def _demand(model: SlicedModel) -> MigDemand:
    """The input of `partita mig`."""
    sizes = range(1, LARGEST + 1)
    slices = {
        name: {
            "throughput": {b: 1000 / model.latency_ms(name, b) for b in sizes},
            "utilization": {b: model.utilization(name, b) for b in sizes},
        }
        for name in COMPUTE
    }
    asked = {"name": model.name.lower(), "batches": _distribution(), "sloMs": _sla_ms(model), "slices": slices}
    return MigDemand.model_validate({"product": "A100-40GB", "gpus": GPUS, "models": [asked]})


def _paris(model: SlicedModel) -> Mapping[str, int]:
    """The slices of PARIS for this model and these queries."""
    answer = pack_by_paris(_demand(model), known_products(), Deadline.after(10, time.perf_counter))
    if not isinstance(answer, Packing):
        raise SystemExit(f"PARIS found no slices for {model.name}: {answer.message}")
    return {name: sum(n for (_, cut), n in answer.instances.items() if cut == name) for name in COMPUTE}


def _exact(model: SlicedModel) -> Mapping[str, int]:
    """The slices of `partita mig`: the most queries, with a quarter of the SLA left for waiting."""
    answer = pack(_demand(model), known_products(), Deadline.after(30, time.perf_counter))
    if not isinstance(answer, Packing):
        raise SystemExit(f"no slices for {model.name}: {answer.message}")
    return {name: answer.slices.get(name, 0) for name in COMPUTE}


def _throughput(model: SlicedModel, cut: Mapping[str, int], policy: str, effort: Effort) -> float:
    """The highest rate of queries with 95 % in time."""
    sla_ms = _sla_ms(model)
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
        stream = RequestStream(model.name, arrivals_at(ArrivalProcess.POISSON, rate), sla_ms, query_sizes)
        return min(
            simulate_streams(plan, [stream], effort.seconds, seed)[model.name].attainment for seed in effort.seeds
        )

    mean = float(np.mean(query_sizes(100_000, np.random.default_rng(0))))
    bound = sum(1000 * count / model.latency_ms(name, round(mean)) for name, count in cut.items())
    return goodput(worst, bound, target=0.95, precision=effort.precision)


def _stage(model: SlicedModel, name: str, count: int) -> ScheduledStage:
    return ScheduledStage(
        pool=name,
        first_block=0,
        end_block=1,
        vgpu_divisor=1,
        replicas=count,
        latency_micros=tuple(round(1000 * model.latency_ms(name, b)) for b in range(1, LARGEST + 1)),
    )
