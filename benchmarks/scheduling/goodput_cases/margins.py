"""The margin of the SLO in planning: goodput of plans with margins other than PPipe's 40 %."""

import json
import time
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.planner.ppipe_reference import PLANS, Case, pool_of
from benchmarks.scheduling.goodput_cases.measure import Effort, Row, say
from benchmarks.scheduling.goodput_cases.pooled import PROCESSES, scheduling_plan, spread_out

from partita_planner.allocation.template_search import Found
from partita_planner.solver.deadline import Deadline
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.streams import RequestStream, simulate_streams

MARGINS = (0.1, 0.2, 0.3, 0.4)
PAPER_MARGIN = 0.4
PLANNED_AS = "strict"
PLANNING_SECONDS = 20.0


def margins(effort: Effort) -> Sequence[Row]:
    """Goodput of plans for PPipe's configurations by the margin of the SLO, relative to a margin of 40 %."""
    if effort.data is None:
        say("margins needs --data; left out")
        return []
    references = json.loads((effort.data / "ppipe" / "reference_plans.json").read_text())
    references = [reference for reference in references if reference["trace"] == "maf19"][:: 3 if effort.quick else 1]
    rows = []
    planned = {margin: [_replanned(reference, margin, effort) for reference in references] for margin in MARGINS}
    for process in ("Poisson", "Azure-like"):
        carried = {m: [_carried(reference, process, effort) for reference in planned[m]] for m in MARGINS}
        for margin, levels in carried.items():
            wins = [level / usual for level, usual in zip(levels, carried[PAPER_MARGIN], strict=True)]
            factors = [level / reference["value"] for level, reference in zip(levels, planned[margin], strict=True)]
            figures = {
                "of_goodput_at_40": round(mean(wins), 3),
                "least": round(min(wins), 3),
                "most": round(max(wins), 3),
            }
            figures["of_planned"] = round(mean(factors), 3)
            rows.append(Row(f"{len(references)} configurations, {process}", f"margin {margin:.0%}", figures))
            say(f"  {process}, margin {margin:.0%}: {figures}")
    return rows


def _replanned(reference: Mapping[str, Any], margin: float, effort: Effort) -> Mapping[str, Any]:
    """The configuration with a plan that keeps this share of the SLO free."""
    assert effort.data is not None
    profiles = {
        model: json.loads((effort.data / "ppipe" / "profiles" / f"{model}.json").read_text())
        for model in reference["models"]
    }
    wanted = {**reference, "slo_margin_us": [margin * slo for slo in reference["slo_us"]]}
    pools = {pool["gpu"]: pool_of(pool, reference["bandwidth_gbps"]) for pool in reference["pools"]}
    found = PLANS[PLANNED_AS](Case(wanted, profiles, pools, Deadline.after(PLANNING_SECONDS, time.perf_counter)))
    if not isinstance(found, Found):
        raise SystemExit(f"no plan within {PLANNING_SECONDS:g} s at a margin of {margin:.0%}")
    plan = [
        {
            "model": model,
            "pipelines": [
                {
                    "stages": [
                        {
                            "blocks": [stage.first, stage.end],
                            "gpu": stage.pool,
                            "vgpu_divisor": stage.divisor,
                            "batch": deployment.template.batch,
                            "gpus": replicas / stage.divisor,
                        }
                        for stage, replicas in zip(deployment.template.stages, deployment.replicas, strict=True)
                    ]
                }
                for deployment in found.deployments[model]
            ],
        }
        for model in reference["models"]
    ]
    return {**wanted, "plan": plan, "value": found.value}


def _carried(reference: Mapping[str, Any], process: str, effort: Effort) -> float:
    """The highest total rate, divided by the models' weights, at which each model has 99 % in time."""
    assert effort.data is not None
    plan = scheduling_plan(reference, "Deferred", effort.data / "ppipe" / "profiles")
    placed = spread_out(plan, reference["pools"])
    models = list(zip(reference["models"], reference["weights"], reference["slo_us"], strict=True))

    def worst(rate: float) -> float:
        streams = [
            RequestStream(model, PROCESSES[process](rate * weight, rate), slo / 1000) for model, weight, slo in models
        ]
        attained = [
            report.attainment
            for seed in effort.seeds
            for report in simulate_streams(plan, streams, effort.seconds, seed, placed=placed).values()
        ]
        return min(attained)

    return goodput(worst, 1.1 * reference["value"], precision=effort.precision)
