"""What plans gain by padding rare size classes to larger ones, for samples of several distributions of length.

    python benchmarks/scheduling/padded_classes.py [--quick] [--seed 1]

The model and its times are those of size_classes.py: an encoder of up to 512 tokens in four classes. Three plans are
compared: one class for all samples, replicas for every class, and what the planner chooses. Occupancy: the GPUs that a
plan of least occupancy keeps busy at a rate. Goodput: the highest rate at which 99 % of all requests are in time, by
simulation of the plan for most throughput on some GPUs; the median over the seeds. The last line of the output is a
summary in JSON.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.scheduling.goodput_cases.measure import TARGET, say
from benchmarks.scheduling.size_classes import LONGEST, Lengths, micros, session

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import (
    ArrivalProcess,
    CostModel,
    InferenceSession,
    InferenceSessionSpec,
    Objective,
    ObjectiveType,
)
from partita_api.meta import ObjectMeta
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.profile import Profile
from partita_api.session.edge import Edge, FanOut
from partita_api.session.module import FunctionSource, Module
from partita_api.session.size_classes import size_classes
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, PlanningProblem, Pool
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.simulator import simulate

SIZES = (64, 128, 256, LONGEST)
RATES = (20, 100, 1000)
GPUS = (2, 4, 8)
"""Of the plans for most throughput."""
OCCUPANCY = Objective(type=ObjectiveType.COST, cost_model=CostModel.OCCUPANCY)
THROUGHPUT = Objective(type=ObjectiveType.THROUGHPUT)
LENGTHS = (
    Lengths.lognormal("short", 25, 0.6),
    Lengths.lognormal("long", 400, 0.5),
    Lengths.lognormal("mixed", 120, 0.7),
    Lengths(
        "rare long: 1 % of 257 to 512, the others 1 to 64",
        np.concatenate([np.arange(1, 65)] * 396 + [np.arange(257, 513)]),
    ),
    Lengths(
        "rare short: 1 % of 1 to 64, the others 257 to 512",
        np.concatenate([np.arange(257, 513)] * 99 + [np.arange(1, 65)] * 4),
    ),
)


def of_every_class(spec: InferenceSessionSpec) -> InferenceSessionSpec:
    """The size classes as modules of their own, behind a function: the planner gives replicas to all of them."""
    classes = [each for module in spec.modules for each in size_classes(module)]
    route = Module(name="route", function=FunctionSource(entrypoint="benchmarks:route", max_millis=0))
    edges = [
        Edge.model_validate({"from": "route", "to": each.name, "fanOut": FanOut(mean=Quantity(each.share))})
        for each in classes
    ]
    return spec.model_copy(update={"modules": (route, *(each.module for each in classes)), "edges": tuple(edges)})


def profiles_of(spec: InferenceSessionSpec) -> dict[tuple[str, str], Profile]:
    """Profiles of the encoder in each size."""
    profiles = {}
    for module in with_size_classes(spec).modules:
        assert module.model is not None
        assert module.input is not None
        times = {batch: micros(module.input.shape[0], batch) / 1000 for batch in (1, 2, 4, 8, 16, 32, 64)}
        profiles[module.name, "h200"] = Profile.of_whole_model(module.model, module.input, "h200", times)
    return profiles


def planned(spec: InferenceSessionSpec, every: bool, rate: float, gpus: int) -> PipelinePlanSpec | None:
    """The plan, or that with replicas for every class; None if the GPUs are too few."""
    asked = of_every_class(spec) if every else spec
    pools = (Pool.priced("h200", gpus, 1.0),)
    problem = PlanningProblem(SessionRef(name="encoder"), asked, rate, pools, profiles_of(spec))
    outcome = plan(problem, explain_seconds=0)
    if isinstance(outcome, NoPlan):
        return None
    modules = tuple(module for module in outcome.plan.modules if module.name != "route")
    return outcome.plan.model_copy(update={"modules": modules})


def goodput_of(spec: InferenceSessionSpec, found: PipelinePlanSpec, seconds: float, seed: int) -> float:
    """The highest rate with 99 % of all requests in time."""
    asked, profiles = InferenceSession(metadata=ObjectMeta(name="encoder"), spec=spec), profiles_of(spec)

    def attainment(rate: float) -> float:
        arrivals = arrivals_at(ArrivalProcess.POISSON, rate)
        return simulate(asked, found, profiles, arrivals=arrivals, seconds=seconds, seed=seed).attainment

    return goodput(attainment, 1.5 * float(found.throughput), TARGET, 0.01)


def row_of(
    lengths: Lengths, sizes: Sequence[int], every: bool, seconds: float, seeds: Sequence[int]
) -> dict[str, object]:
    """Occupancy and goodput of the plans for these classes."""
    row: dict[str, object] = {}
    spec = session(lengths, sizes)
    for rate in RATES:
        found = planned(spec.model_copy(update={"objective": OCCUPANCY}), every, rate, 64)
        row[f"busy at {rate}/s"] = None if found is None else round(float(found.cost.occupancy_per_hour), 3)
    for gpus in GPUS:
        found = planned(spec.model_copy(update={"objective": THROUGHPUT}), every, 1.0, gpus)
        runs = [] if found is None else [goodput_of(spec, found, seconds, seed) for seed in seeds]
        row[f"goodput of {gpus}"] = round(statistics.median(runs)) if runs else None
    return row


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short simulations, of one seed")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run at each rate")
    options = parser.parse_args()
    seeds = tuple(range(options.seed, options.seed + (1 if options.quick else 3)))
    rows = []
    for lengths in LENGTHS:
        say(lengths.name)
        for name, sizes, every in (("512", (LONGEST,), False), ("every class", SIZES, True), ("padded", SIZES, False)):
            row = row_of(lengths, sizes, every, 2.0 if options.quick else 5.0, seeds)
            rows.append({"lengths": lengths.name, "plan": name, **row})
            print(name, *(f" {key} {value}" for key, value in row.items()), flush=True)
    print(json.dumps({"sizes": SIZES, "seeds": seeds, "rows": rows}))


if __name__ == "__main__":
    main()
