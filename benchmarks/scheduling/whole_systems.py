"""Whole systems side by side: plans of several strategies on one simulated data plane, in PPipe's configurations.

    python benchmarks/scheduling/whole_systems.py --data DIR [--only NAME]... [--cluster HC1]... [--quick] [--seed 1]

    large         100 GPUs, groups of three models, Poisson arrivals (PPipe, section 7.2)
    bursty        the same with the Azure-like arrivals of `goodput.py`
    small         16 GPUs, one model (7.3)
    reservations  large, with the same plans under Partita's data plane and under a reactive one (7.4)
    slo-scale     small on HC1, with SLOs of 2 to 10 times the latency on the fastest GPU (7.6)
    gpu-ratio     small on HC1, with other shares of the high class (7.6)

DIR holds `reference_plans.json` and `profiles/<model>.json`: the configurations and profiles of PPipe's artifact
(https://github.com/JonnyKong/PPipe), in the form that `ppipe_reference.py` reads. They are not part of this repository.

Goodput is the highest rate at which each model has 99 % of its requests in time. Every strategy has the margin of the
SLO with which it serves most, and all of them Partita's scheduler and placement: DART-r's chains, too, may hand a batch
to any GPU of the second class. Progress is printed to stderr; the last line of the output is a summary in JSON.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.scheduling.goodput_cases.measure import TARGET, Effort, say
from benchmarks.scheduling.system_cases.configurations import SMALL, Configuration, large, small
from benchmarks.scheduling.system_cases.system import REACTIVE, RESERVED, System, planned

BASELINES = ("no-partitioning", "dart-r")
STRATEGIES = (*BASELINES, "ppipe", "partita")
PAPER_MARGIN = 0.4
MARGINS = (PAPER_MARGIN, 0.3, 0.2, 0.1)
"""Shares of the SLO that plans keep free. Partita's default is 0.2."""
PLANE_MARGINS = (PAPER_MARGIN, 0.2)
"""Those of the plans that both data planes serve."""
POISSON, BURSTY = "Poisson", "Azure-like"
SCALES = (2, 3, 5, 7, 10)
RATIOS = ((2, 14), SMALL, (8, 8), (12, 4))
"""GPUs of the high and of the low class."""
PAPER: Mapping[str, str] = {
    "large": "PPipe to no-partitioning 1.48, to dart-r 1.32; low class busy 8, 30 and 74 %",
    "bursty": "PPipe to no-partitioning 1.75, to dart-r 1.36",
    "small": "PPipe to no-partitioning 1.43 to 1.53, to dart-r 1.17 to 1.34",
    "reservations": "0.71 of the plan without, 0.92 with (HC2)",
    "slo-scale": "PPipe to no-partitioning: about 1 at 2 times, little at 10 times",
    "gpu-ratio": "PPipe to no-partitioning: 1.64 at 2:14, 1.06 at 12:4",
}


@dataclass(frozen=True)
class Options:
    """What to run, and how precisely."""

    data: Path
    clusters: Sequence[str]
    effort: Effort
    planning_seconds: float

    def taken(self, configurations: Iterable[Configuration]) -> Sequence[Configuration]:
        """Those of the chosen clusters; of each cluster only one, if it is to be quick."""
        chosen = [each for each in configurations if each.cluster in self.clusters]
        return list({each.cluster: each for each in chosen}.values()) if self.effort.quick else chosen


@dataclass(frozen=True)
class Result:
    """One system at its goodput."""

    case: str
    configuration: str
    strategy: str
    goodput: float = 0.0
    margin: float | None = None
    """None if there is no plan."""
    planned: float = 0.0
    at_paper_margin: float = 0.0
    """Its goodput with the margin of PPipe's paper."""
    utilization: Sequence[float] = (0.0, 0.0)
    """Of the high and of the low class."""


def main() -> None:
    """Run the experiments and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with reference_plans.json and profiles/")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment (may be repeated)")
    parser.add_argument("--cluster", action="append", choices=CLUSTERS, help="only this cluster (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="two configurations each, short and less precise runs")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals")
    parser.add_argument("--seconds", type=float, help="simulated time of one run")
    parser.add_argument("--planning-seconds", type=float, help="time limit of one plan")
    chosen = parser.parse_args()
    quick = chosen.quick
    effort = Effort(
        seconds=chosen.seconds or (3.0 if quick else 10.0),
        seeds=(chosen.seed,),
        precision=0.05 if quick else 0.01,
        data=chosen.data,
        quick=quick,
    )
    clusters = chosen.cluster or (CLUSTERS[::2] if quick else CLUSTERS)
    options = Options(chosen.data, clusters, effort, chosen.planning_seconds or (3.0 if quick else 9.0))
    told: dict[str, Any] = {}
    for name in chosen.only or EXPERIMENTS:
        print(f"{name}  (paper: {PAPER[name]})", flush=True)
        told[name] = EXPERIMENTS[name](options)
    print(json.dumps({"clusters": clusters, "seconds": effort.seconds, "seed": chosen.seed, "experiments": told}))


def compared(
    cases: Iterable[tuple[str, Configuration]], process: str, options: Options, strategies: Sequence[str] = STRATEGIES
) -> Mapping[str, Any]:
    """Every strategy in every configuration; how the goodput of each compares, by case."""
    results: dict[str, list[Result]] = {}
    for case, configuration in cases:
        row = [best(case, configuration, strategy, process, options) for strategy in strategies]
        results.setdefault(case, []).extend(row)
        figures = "  ".join(f"{r.strategy} {r.goodput:7.0f} ({r.margin or 0:.0%})" for r in row)
        print(f"{case:5} {configuration.name:40} {figures}", flush=True)
    everything = [result for group in results.values() for result in group]
    cases_told = {case: ratios(group) for case, group in results.items()}
    for case, summary in {**cases_told, "all": ratios(everything)}.items():
        print(f"{case:5} {json.dumps(summary)}", flush=True)
    return {"cases": cases_told, "all": ratios(everything), "results": [asdict(result) for result in everything]}


def best(case: str, configuration: Configuration, strategy: str, process: str, options: Options) -> Result:
    """The system with the margin with which it serves most."""
    result, effort = Result(case, configuration.name, strategy), options.effort
    for margin in MARGINS:
        system = planned(configuration, strategy, margin, options.planning_seconds)
        if system is None or (result.goodput and system.attainment(result.goodput, process, effort) < TARGET):
            continue
        rate = system.goodput(process, effort)
        at_paper_margin = rate if margin == PAPER_MARGIN else result.at_paper_margin
        if rate > result.goodput:
            busy = tuple(system.utilization(rate, process, effort).values())
            result = replace(result, goodput=rate, margin=margin, planned=system.planned, utilization=busy)
        result = replace(result, at_paper_margin=at_paper_margin)
    say(f"  {case} {configuration.name} {strategy}: {result.goodput:.0f}, margin 40 % {result.at_paper_margin:.0f}")
    return result


def ratios(results: Sequence[Result]) -> Mapping[str, Any]:
    """Each strategy beside the baselines, and how busy the classes are."""
    by_strategy: dict[str, list[Result]] = {}
    for result in results:
        by_strategy.setdefault(result.strategy, []).append(result)
    told: dict[str, Any] = {}
    for strategy, group in by_strategy.items():
        told[strategy] = {
            "busy_high": round(mean(result.utilization[0] for result in group), 3),
            "busy_low": round(mean(result.utilization[1] for result in group), 3),
        }
        for baseline in BASELINES:
            pairs = list(zip(group, by_strategy[baseline], strict=True))
            best_of_both = [(mine.goodput, other.goodput) for mine, other in pairs]
            as_in_paper = [(mine.at_paper_margin, other.at_paper_margin) for mine, other in pairs]
            told[strategy][f"to {baseline}"] = shares(best_of_both)
            told[strategy][f"to {baseline}, margin {PAPER_MARGIN:.0%}"] = shares(as_in_paper)
    return told


def shares(pairs: Sequence[tuple[float, float]]) -> Mapping[str, float]:
    """How much more the first ones are, and in how many cases the second one is nothing."""
    found = [mine / other for mine, other in pairs if other]
    return (spread(found) if found else {}) | {"beside_nothing": len(pairs) - len(found)}


def spread(numbers: Sequence[float]) -> dict[str, float]:
    """Middle and extremes."""
    middle = {"mean": mean(numbers), "median": median(numbers), "min": min(numbers), "max": max(numbers)}
    return {name: round(value, 3) for name, value in middle.items()}


def large_systems(options: Options, process: str = POISSON) -> Mapping[str, Any]:
    """100 GPUs."""
    return compared(((each.cluster, each) for each in options.taken(large(options.data))), process, options)


def small_systems(options: Options) -> Mapping[str, Any]:
    """16 GPUs."""
    return compared(((each.cluster, each) for each in options.taken(small(options.data))), POISSON, options)


def on_first_cluster(options: Options) -> Sequence[Configuration]:
    """The small configurations of HC1."""
    return options.taken(each for each in small(options.data) if each.cluster == CLUSTERS[0])


def slo_scales(options: Options) -> Mapping[str, Any]:
    """Several SLOs."""
    cases = [(f"x{scale}", each.with_slo_scale(scale)) for scale in SCALES for each in on_first_cluster(options)]
    return compared(cases, POISSON, options)


def gpu_ratios(options: Options) -> Mapping[str, Any]:
    """Several shares of the high class."""
    cases = [(f"{a}:{b}", each.with_gpus((a, b))) for a, b in RATIOS for each in on_first_cluster(options)]
    return compared(cases, POISSON, options)


def reservations(options: Options) -> Mapping[str, Any]:
    """The same plans with both data planes: goodput of each, and what the reactive one attains at that of the other."""
    rows = []
    for configuration in options.taken(large(options.data)):
        for margin in PLANE_MARGINS:
            system = planned(configuration, "partita", margin, options.planning_seconds)
            if system is not None:
                rows.append(
                    {"configuration": configuration.name, "margin": margin, **both_planes(system, options.effort)}
                )
                print(f"{configuration.name:40} {rows[-1]}", flush=True)
    told = {
        f"margin {margin:.0%}": {
            name: spread([row[name] for row in rows if row["margin"] == margin])
            for name in ("reserved_of_plan", "reactive_of_plan", "reactive_attainment")
        }
        for margin in dict.fromkeys(row["margin"] for row in rows)
    }
    print(json.dumps(told), flush=True)
    return {"all": told, "results": rows}


def both_planes(system: System, effort: Effort) -> dict[str, float]:
    """One plan with reservations and without."""
    reserved, reactive = (system.goodput(POISSON, effort, plane) for plane in (RESERVED, REACTIVE))
    return {
        "planned": round(system.planned, 1),
        "reserved_of_plan": round(reserved / system.planned, 3),
        "reactive_of_plan": round(reactive / system.planned, 3),
        "reactive_attainment": round(system.attainment(reserved, POISSON, effort, REACTIVE), 3) if reserved else 0.0,
    }


CLUSTERS = ("HC1", "HC2", "HC3", "HC4")
"""L4+P4, L4+T4, V100+P4 and V100+T4."""
EXPERIMENTS: Mapping[str, Callable[[Options], Mapping[str, Any]]] = {
    "large": large_systems,
    "bursty": lambda options: large_systems(options, BURSTY),
    "small": small_systems,
    "reservations": reservations,
    "slo-scale": slo_scales,
    "gpu-ratio": gpu_ratios,
}


if __name__ == "__main__":
    main()
