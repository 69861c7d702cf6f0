"""The cost benchmark: every answer in the dump is valid, and Partita's never costs more than another."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.planner.configurations.dump_checker import violations

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks/planner/cost_strategies.py"
STRATEGIES = {
    "partita",
    "partita-allocated",
    "harpagon",
    "piccolo",
    "nexus",
    "scrooge",
    "inferline",
    "clipper",
    "optimal",
}
Dumped = list[dict[str, Any]]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dumped, Mapping[str, Any]]:
    """The dump and the summary of twenty workloads, with the ablations."""
    file = tmp_path_factory.mktemp("benchmark") / "dump.jsonl"
    command = [sys.executable, SCRIPT, "--workloads", "20", "--seed", "7", "--ablations", "--dump", file]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in file.read_text().splitlines()], json.loads(run.stdout.splitlines()[-1])


def test_every_answer_holds(benchmark: tuple[Dumped, Mapping[str, Any]]) -> None:
    dumped, summary = benchmark

    assert [found for workload in dumped for found in violations(workload)] == []
    assert len(dumped) == summary["workloads"] == 20
    assert set(summary["strategies"]) > STRATEGIES


@pytest.mark.parametrize(
    ("ours", "cost"),
    [
        pytest.param("partita", "cost_occupancy", id="occupancy"),
        pytest.param("partita-allocated", "cost_allocated", id="allocated"),
    ],
)
def test_nothing_is_cheaper_than_ours(benchmark: tuple[Dumped, Mapping[str, Any]], ours: str, cost: str) -> None:
    for workload in benchmark[0]:
        assert workload["results"][ours]["feasible"]
        least = workload["results"][ours][cost]
        assert all(result[cost] >= least * (1 - 1e-9) for result in workload["results"].values() if result["feasible"])


def test_harpagon_is_never_below_the_optimum_of_its_space(benchmark: tuple[Dumped, Mapping[str, Any]]) -> None:
    for workload in benchmark[0]:
        optimal, harpagon = workload["results"]["optimal"], workload["results"]["harpagon"]
        assert optimal["cost_occupancy"] <= harpagon["cost_occupancy"] * (1 + 1e-9)


def test_checker_sees_what_is_wrong(benchmark: tuple[Dumped, Mapping[str, Any]]) -> None:
    workload = json.loads(json.dumps(benchmark[0][1]))
    result = workload["results"]["partita"]
    first = next(iter(result["allocations"].values()))[0]
    first["rate"] *= 2
    workload["results"] = {"partita": result}

    found = " ".join(violations(workload))

    assert "serves" in found
    assert "occupancy is" in found
