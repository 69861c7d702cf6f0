"""The benchmarks of the examples run, and their figures are possible."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.planner.savings_cases.gpu_classes import BATCH_SIZES, CLASSES, KERNEL_SECONDS, REACHED, derived
from benchmarks.planner.savings_cases.measured import BlockWork, CpuSpeed, MeasuredModel

from partita_api.profile import Profile
from partita_api.session.module import ModelSource, TensorSpec

ROOT = Path(__file__).resolve().parents[2]
CPU = CpuSpeed(flops_per_second=1e11, bytes_per_second=1e10)


def run(script: str, *arguments: str) -> dict[str, Any]:
    """The summary of a benchmark."""
    command = [sys.executable, ROOT / "benchmarks" / script, "--quick", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(micros: float, work: BlockWork) -> MeasuredModel:
    profile = Profile.of_whole_model(ModelSource(entrypoint="a:b"), TensorSpec(shape=(1,)), "cpu", {1: micros / 1000})
    return MeasuredModel(profile=profile, work=(work,))


def test_a_block_uses_the_same_share_of_the_roofline_on_a_gpu() -> None:
    """10 GFLOP take 0.1 s on the CPU, so a block that takes 0.2 s uses half of it."""
    work = BlockWork(flops=1e10, weights_bytes=0, activation_bytes=1e6, kernels=3)

    profile = derived(measured(200_000, work), CPU, CLASSES["t4"])

    (whole, half) = (profile.divisor(divisor) for divisor in (1, 2))
    assert whole is not None
    assert half is not None
    computing = [1e6 * batch * 1e10 / (REACHED * 8.1e12) / 0.5 for batch in BATCH_SIZES]
    assert whole.median_micros[0] == pytest.approx([3e6 * KERNEL_SECONDS + each for each in computing], abs=0.01)
    assert half.median_micros[0] == pytest.approx([3e6 * KERNEL_SECONDS + 2 * each for each in computing], abs=0.01)


def test_memory_limits_a_block_that_computes_little() -> None:
    work = BlockWork(flops=1, weights_bytes=3e8, activation_bytes=3e8, kernels=0)

    profile = derived(measured(1, work), CPU, CLASSES["l4"])  # faster than the roofline allows: a cache holds it

    assert profile.latency[0].median_micros[0] == pytest.approx([1000 * (1 + batch) for batch in BATCH_SIZES])


def test_savings_of_an_example(tmp_path: Path) -> None:
    found = run("planner/example_savings.py", "--only", "speech", "--profiles", str(tmp_path))

    rows = {row["plan"]: row for row in found["rows"]}
    partita = rows["partita"]
    (case,) = found["cases"]
    peak = sum(count * CLASSES[name].flops_per_second for name, count in found["gpus"].items())
    assert {"partita", "only l4", "only t4", "whole models", "one batch for all models"} <= rows.keys()
    assert all(row["attainment"] >= 0.99 for row in rows.values() if row["cost"] is not None)
    assert partita["cost"] == min(row["cost"] for row in rows.values() if row["cost"] is not None)
    assert 0 < 1e9 * case["gflops"] * partita["goodput"] < REACHED * peak


def test_precision_of_an_example() -> None:
    found = run("models/precision.py", "--only", "speech")

    scores = {row["form"]: row["scores"] for row in found["rows"]}
    assert scores["Eager, whole"]["largest difference"] < 1e-4
    assert scores["Eager, the model in FP16"]["largest difference"] > 1e-4
    assert all(each["windows that agree"] == 1 for each in scores.values())
