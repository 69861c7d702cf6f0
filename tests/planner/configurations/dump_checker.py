"""Checks the dump of `benchmarks/planner/cost_strategies.py` from its numbers alone, with separate code."""

from collections.abc import Iterator
from math import isclose
from typing import Any

TOLERANCE = 1e-6


def violations(workload: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the answers of one line of the dump."""
    for strategy, result in workload["results"].items():
        if result["feasible"]:
            for wrong in _result_violations(workload, result):
                yield f"{strategy}: {wrong}"


def _result_violations(workload: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    occupancy = allocated = 0.0
    budgets = result["budgets_ms"]
    for module in workload["modules"]:
        name = module["name"]
        configs = {(c["batch"], c["hardware"]): c for c in module["configs"]}
        machines = [(configs[a["batch"], a["hardware"]], a) for a in result["allocations"][name]]
        for config, allocation in machines:
            ratio = _ratio(config)
            remaining = sum(a["rate"] for c, a in machines if _ratio(c) <= ratio * (1 + 1e-12))
            latency = config["duration_ms"] + 1000 * config["batch"] / remaining
            if latency > budgets[name] * (1 + TOLERANCE):
                yield f"{name} takes {latency} ms of {budgets[name]}"
            capacity = allocation["machines"] * _throughput(config)
            if allocation["machines"] < 1 or allocation["rate"] > capacity * (1 + TOLERANCE):
                yield f"{name} sends {allocation['rate']} to machines for {capacity}"
            occupancy += config["price"] * allocation["rate"] / _throughput(config)
            allocated += config["price"] * allocation["machines"]
        served, desired = sum(a["rate"] for _, a in machines), module["rate"] + result["dummy"][name]
        if result["dummy"][name] < 0 or not isclose(served, desired, rel_tol=TOLERANCE):
            yield f"{name} serves {served} of {desired}"
    for path in _paths(workload):
        if sum(budgets[name] for name in path) > workload["slo_ms"] * (1 + TOLERANCE):
            yield f"{' -> '.join(path)} takes more than the SLO"
    if not isclose(occupancy, result["cost_occupancy"], rel_tol=TOLERANCE):
        yield f"occupancy is {occupancy}, not {result['cost_occupancy']}"
    if not isclose(allocated, result["cost_allocated"], rel_tol=TOLERANCE):
        yield f"allocated is {allocated}, not {result['cost_allocated']}"


def _throughput(config: dict[str, Any]) -> float:
    return float(1000 * config["batch"] / config["duration_ms"])


def _ratio(config: dict[str, Any]) -> float:
    return _throughput(config) / float(config["price"])


def _paths(workload: dict[str, Any]) -> Iterator[list[str]]:
    after: dict[str, list[str]] = {m["name"]: [] for m in workload["modules"]}
    for upstream, downstream in workload["edges"]:
        after[upstream].append(downstream)

    def onward(name: str) -> Iterator[list[str]]:
        if not after[name]:
            yield [name]
        for target in after[name]:
            for path in onward(target):
                yield [name, *path]

    downstream_of_some = {target for targets in after.values() for target in targets}
    for root in after.keys() - downstream_of_some:
        yield from onward(root)
