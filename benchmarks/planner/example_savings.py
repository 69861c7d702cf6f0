"""What Partita's plans save for each example, beside plans of one GPU class, of whole models, and of a fixed batch.

    python benchmarks/planner/example_savings.py [--quick] [--only EXAMPLE]... [--profiles DIR]

For each example the blocks of its models are measured on one thread of this machine's CPU, once: DIR keeps the
results. Profiles of two GPU classes are derived from them with the roofline of the classes' data sheets. No GPU is
measured, so the figures compare ways to plan, not machines. Functions take their `maxMillis`; the SLO is that and five
times what the models of the slowest path take for one sample on the slower class.

Every plan is simulated with Poisson arrivals. Goodput: the highest rate at which 99 % of all requests are in time, on
a pool of both classes. Cost: that of the cheapest plan for a rate for which 99 % are in time; the planner's
headroom (and the fixed batch) are those that give it. The last line of the output is a summary in JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import ceil
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from benchmarks.planner.savings_cases.gpu_classes import BATCH_SIZES, CLASSES, derived
from benchmarks.planner.savings_cases.measured import cpu_speed, measured_models

from partita_api.inferencesession import (
    ArrivalProcess,
    InferenceSession,
    InferenceSessionSpec,
    Objective,
    ObjectiveType,
    PlannerSettings,
    Slo,
)
from partita_api.manifests import parse_manifests
from partita_api.module_graph import longest_paths, topological_order, with_size_classes
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.profile import Profile
from partita_api.session.execution import Batching
from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_planner.session.session_graph import module_rates
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.simulator import simulate

ROOT: Final = Path(__file__).resolve().parents[2]
GPUS: Final = {"l4": 4, "t4": 8}
"""Of the pool on which goodput is measured."""
PLENTY: Final = 200
"""GPUs of each class among which the cheapest are chosen."""
TARGET: Final = 0.99
SLOWEST: Final = "t4"
SLO_FACTOR: Final = 5
PLAN_SECONDS: Final = 10
RATES: Final = {"ocr": 100, "semantic_search": 3000, "speech": 100_000, "traffic": 10_000}
"""Requests per second of the plans whose cost is compared, by example."""


@dataclass(frozen=True)
class Variant:
    """A way to plan."""

    name: str
    classes: tuple[str, ...] = tuple(CLASSES)
    stages: tuple[int, ...] = (1, 2)
    """The most stages of a pipeline. With several numbers the best plan is taken: the search among pipelines of two
    stages may end before it has found the best of one."""
    strategy: str = "partita"
    batches: tuple[int | None, ...] = (None,)
    """Fixed batches of which the best is taken; None: the planner chooses for each model."""


PARTITA: Final = Variant("partita")
VARIANTS: Final = (
    PARTITA,
    *(Variant(f"only {name}", classes=(name,)) for name in CLASSES),
    Variant("whole models", stages=(1,)),
    Variant("whole models on whole GPUs", stages=(1,), strategy="no-partitioning"),
    Variant("one batch for all models", batches=(1, 2, 4, 8)),
)


@dataclass(frozen=True)
class Effort:
    """How exact the measurements are."""

    blocks: int
    profiling_seconds: float
    """For the timing of each model."""
    requests: int
    """Of one simulation."""
    precision: float
    """Of the goodput."""
    headrooms: Sequence[int]
    """Percent, of the plans among which the cheapest is chosen."""


FULL: Final = Effort(blocks=10, profiling_seconds=4.0, requests=4000, precision=0.01, headrooms=(10, 30))
QUICK: Final = Effort(blocks=2, profiling_seconds=0.2, requests=200, precision=0.1, headrooms=(25,))


@dataclass(frozen=True)
class Case:
    """One example on the GPU classes."""

    example: str
    session: InferenceSession
    profiles: Mapping[tuple[str, str], Profile]
    rate: int
    """For which costs are compared."""
    gflops: float
    """Of one request, without padding to batches."""

    def plans(
        self, variant: Variant, gpus: Mapping[str, int], objective: ObjectiveType, headrooms: Sequence[int]
    ) -> list["Candidate"]:
        """The plans on these GPUs; none where the SLO or the GPUs do not suffice."""
        return [
            Candidate(found, headroom, batch)
            for headroom, stages, batch in product(headrooms, variant.stages, variant.batches)
            if (found := self._planned(variant, gpus, objective, headroom, stages, batch)) is not None
        ]

    def _planned(
        self,
        variant: Variant,
        gpus: Mapping[str, int],
        objective: ObjectiveType,
        headroom: int,
        stages: int,
        batch: int | None,
    ) -> PipelinePlanSpec | None:
        shares = objective is ObjectiveType.COST and variant.strategy == PARTITA.strategy
        planner = PlannerSettings(
            strategy=variant.strategy,
            max_stages=stages,
            max_batch_size=max(BATCH_SIZES),
            headroom_percent=headroom,
            share_gpus=shares,
            time_limit_seconds=PLAN_SECONDS,
        )
        spec = self.session.spec.model_copy(update={"objective": Objective(type=objective), "planner": planner})
        profiles = {
            key: profile if batch is None else _of_one_batch(profile, batch)
            for key, profile in self.profiles.items()
            if key[1] in variant.classes
        }
        pools = tuple(CLASSES[name].pool(gpus[name]) for name in variant.classes)
        problem = PlanningProblem(SessionRef(name=self.example), spec, float(self.rate), pools, profiles)
        outcome = plan(problem, clock=time.process_time, explain_seconds=0)  # other processes shorten no search
        if isinstance(outcome, Planned):
            return outcome.plan
        print(f"{self.example}, {variant.name}, batch {batch}: {outcome.message}", file=sys.stderr, flush=True)
        return None

    def attainment(self, found: PipelinePlanSpec, rate: float, requests: int) -> float:
        """The share of the requests that are in time, by simulation."""
        report = simulate(
            self.session,
            found,
            self.profiles,
            {name: float(gpu.pool(1).spec.bandwidth) for name, gpu in CLASSES.items()},
            arrivals_at(ArrivalProcess.POISSON, rate),
            seconds=requests / rate,
            seed=1,
        )
        return report.attainment


@dataclass(frozen=True)
class Candidate:
    """A plan, and what it was made with."""

    plan: PipelinePlanSpec
    headroom: int
    batch: int | None


@dataclass(frozen=True)
class Row:
    """What a way to plan gives for an example."""

    example: str
    plan: str
    goodput: float | None
    """Requests per second; None: no plan."""
    goodput_batch: int | None
    gpus: Mapping[str, int]
    """Of the cheapest plan for the rate."""
    cost: float | None
    """Of these an hour; None: no plan has enough requests in time."""
    attainment: float | None
    headroom: int | None
    cost_batch: int | None


RECURRENT: Final = {"speech": {"detector": 32}}
"""Kernels of a recurrent layer, one for each window in turn; the estimate of a model's work counts them as one."""


def case_of(example: str, effort: Effort, cache: Path) -> Case:
    """An example on the GPU classes, with profiles that are derived from measurements here."""
    manifest = ROOT / "examples" / example / "manifests" / "session.yaml"
    (session,) = parse_manifests(manifest.read_text(), str(manifest)).sessions
    batch = session.spec.planner.max_batch_size  # what the example takes on CPUs
    models = measured_models(session.spec, batch, effort.blocks, effort.profiling_seconds, cache)
    for name, kernels in RECURRENT.get(example, {}).items():
        models[name] = models[name].with_kernels(kernels)
    cpu = cpu_speed(cache)
    profiles = {
        (name, gpu.name): derived(model, cpu, gpu) for name, model in models.items() for gpu in CLASSES.values()
    }
    slo = Slo(latency_ms=_slo_ms(session.spec, profiles))
    spec = session.spec.model_copy(update={"slo": slo, "batching": Batching(), "pools": tuple(CLASSES)})
    rates = module_rates(spec, 1.0)
    flops = sum(float(rates[name]) * sum(work.flops for work in model.work) for name, model in models.items())
    return Case(example, session.model_copy(update={"spec": spec}), profiles, RATES[example], flops / 1e9)


def row_of(case: Case, variant: Variant, effort: Effort) -> Row:
    """Goodput and cost of one way to plan."""
    most, served = _most_goodput(case, variant, effort)
    cheapest, attained = _cheapest(case, variant, effort)
    return Row(
        example=case.example,
        plan=variant.name,
        goodput=served,
        goodput_batch=most and most.batch,
        gpus=cheapest.plan.gpus() if cheapest else {},
        cost=float(cheapest.plan.cost.allocated_per_hour) if cheapest else None,
        attainment=attained,
        headroom=cheapest and cheapest.headroom,
        cost_batch=cheapest and cheapest.batch,
    )


def _most_goodput(case: Case, variant: Variant, effort: Effort) -> tuple[Candidate | None, float | None]:
    """The plan with the highest throughput, and its goodput."""
    plans = case.plans(variant, GPUS, ObjectiveType.THROUGHPUT, [0])
    if not plans:
        return None, None
    best = max(plans, key=lambda each: float(each.plan.throughput))

    def attainment(rate: float) -> float:
        return case.attainment(best.plan, rate, effort.requests)

    return best, goodput(attainment, 1.2 * float(best.plan.throughput), TARGET, effort.precision)


def _cheapest(case: Case, variant: Variant, effort: Effort) -> tuple[Candidate | None, float | None]:
    """The cheapest plan that has enough requests in time, and their share."""
    plans = case.plans(variant, dict.fromkeys(CLASSES, PLENTY), ObjectiveType.COST, effort.headrooms)
    for each in sorted(plans, key=lambda each: float(each.plan.cost.allocated_per_hour)):
        attained = case.attainment(each.plan, case.rate, effort.requests)
        if attained >= TARGET:
            return each, attained
    return None, None


def _of_one_batch(profile: Profile, batch: int) -> Profile:
    """The profile with this batch size only."""
    index = profile.batch_sizes.index(batch)
    latency = tuple(
        vgpu.model_copy(update={"median_micros": tuple((row[index],) for row in vgpu.median_micros)})
        for vgpu in profile.latency
    )
    return profile.model_copy(update={"batch_sizes": (batch,), "latency": latency})


def _slo_ms(spec: InferenceSessionSpec, profiles: Mapping[tuple[str, str], Profile]) -> int:
    """Functions, and a multiple of the models' times for one sample, along the slowest path."""
    sized = with_size_classes(spec)
    times = {
        module.name: 1000 * module.reserved_millis for module in sized.modules if module.reserved_millis is not None
    }
    for module in sized.modules:
        if module.name not in times:
            (whole, *_) = profiles[module.name, SLOWEST].latency
            times[module.name] = ceil(SLO_FACTOR * sum(row[0] for row in whole.median_micros))
    edges = [(edge.source, edge.target) for edge in sized.edges]
    paths = longest_paths(topological_order(sized), edges, times)
    free = 1 - PlannerSettings().margin_percent / 100
    return ceil(max(path.time for path in paths.values()) / 1000 / free)


def report(case: Case, rows: Sequence[Row]) -> None:
    """A table of an example."""
    share = (rows[0].goodput or 0) * case.gflops / sum(GPUS[n] * c.flops_per_second / 1e9 for n, c in CLASSES.items())
    pool = " + ".join(f"{count} {name.upper()}" for name, count in GPUS.items())
    print(
        f"\n{case.example}: SLO {case.session.spec.slo.latency_ms} ms, {case.gflops:.3g} GFLOP a request; "
        f"partita's goodput uses {share:.0%} of the pool's arithmetic by the data sheets"
    )
    print(f"| plan | requests/s on {pool} | beside partita | for {case.rate} requests/s | an hour | beside partita |")
    print("|---|---:|---:|---|---:|---:|")
    best = rows[0]
    for row in rows:
        gpus = " + ".join(f"{count} {name.upper()}" for name, count in sorted(row.gpus.items()))
        print(
            f"| {row.plan}{_batches(row)} | {_number(row.goodput, '.0f')} | {_ratio(row.goodput, best.goodput)} "
            f"| {gpus or 'none'} | {_number(row.cost, '.2f')} | {_ratio(row.cost, best.cost)} |"
        )


def _batches(row: Row) -> str:
    return f" ({row.goodput_batch}; {row.cost_batch})" if row.goodput_batch or row.cost_batch else ""


def _number(value: float | None, form: str) -> str:
    return "no plan" if value is None else format(value, form)


def _ratio(value: float | None, best: float | None) -> str:
    return f"{value / best:.2f}" if value is not None and best else ""


def main() -> None:
    """Measure, plan and simulate, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two blocks, one headroom, short simulations")
    parser.add_argument("--only", action="append", choices=RATES, help="only this example (may be repeated)")
    parser.add_argument("--profiles", type=Path, default=ROOT / "report" / "example-profiles", help="measurements")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    rows: list[Row] = []
    cases = []
    print("GPU times are derived from CPU measurements and data sheets. No GPU was measured.")
    for example in options.only or RATES:
        case = case_of(example, effort, options.profiles)
        found = [row_of(case, variant, effort) for variant in VARIANTS]
        report(case, found)
        rows += found
        cases.append({"example": example, "slo_ms": case.session.spec.slo.latency_ms, "gflops": case.gflops})
    print(json.dumps({"quick": options.quick, "gpus": GPUS, "cases": cases, "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
