"""Accelerators that fail and return: every request ends exactly once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import session
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.events import DropReason
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.failures import (
    Failure,
    GpuFailure,
    RandomFailures,
    WorkerFailure,
    worker_failures,
)
from partita_runtime.simulation.emulation.network import Contention
from partita_runtime.simulation.emulation.noise import Noise
from partita_runtime.simulation.emulation.placement import placements
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.simulator import simulate_scheduling

PLAN = plan_of(
    module("m").pipeline(
        4,
        stage("fast", replicas=3, alpha=500, beta=1000, output_bytes=50_000),
        stage("slow", replicas=4, alpha=900, beta=1000),
    ),
    bandwidth={"fast": 1e9, "slow": 1e9},
)
HALVES = PLAN.model_copy(
    update={
        "modules": tuple(
            m.model_copy(
                update={
                    "pipelines": tuple(
                        p.model_copy(
                            update={"stages": tuple(s.model_copy(update={"vgpu_divisor": 2}) for s in p.stages)}
                        )
                        for p in m.pipelines
                    )
                }
            )
            for m in PLAN.modules
        )
    }
)


def run(*failures: Failure, seconds: float = 2, seed: int = 1, **conditions: object) -> SimulationReport:
    spec = session("s").slo(30).model("m").build().spec
    arrivals = arrivals_at(ArrivalProcess.POISSON, 800)
    return simulate_scheduling(spec, PLAN, arrivals, seconds, seed, failures=failures, **conditions)  # type: ignore[arg-type]


def accounted(report: SimulationReport) -> int:
    return report.in_time + report.late + sum(report.dropped.values())


def test_a_failing_accelerator_takes_all_its_workers() -> None:
    found = worker_failures([GpuFailure("slow-gpu-1", 1.0, 0.5)], placements(HALVES), 10, np.random.default_rng(0))

    assert found == [WorkerFailure("m/a/1/2", 1.0, 0.5), WorkerFailure("m/a/1/3", 1.0, 0.5)]


def test_the_others_serve_without_a_lost_accelerator() -> None:
    report = run(GpuFailure("slow-gpu-0", 1.0), timeline=True)

    assert accounted(report) == report.offered
    assert report.attainment > 0.95
    assert max(e.end_micros for e in report.timeline if e.worker == "m/a/1/0") <= 1_000_000


def test_no_request_is_answered_while_all_accelerators_of_a_stage_are_lost() -> None:
    report = run(*(GpuFailure(f"slow-gpu-{number}", 0.5, 1.0) for number in range(4)))

    assert accounted(report) == report.offered
    assert report.attainment == pytest.approx(0.5, abs=0.05)
    assert report.dropped[DropReason.NO_WORKERS] > 600


def test_a_second_failure_of_a_lost_accelerator_changes_nothing() -> None:
    once = run(WorkerFailure("m/a/1/0", 0.5, 1.0))

    assert run(WorkerFailure("m/a/1/0", 0.5, 1.0), WorkerFailure("m/a/1/0", 0.8)) == once


def test_random_failures_depend_on_the_seed() -> None:
    failing = RandomFailures(mean_seconds_between=0.3, mean_seconds_down=0.3)

    assert run(failing) == run(failing)
    assert run(failing) != run(failing, seed=2)
    assert run(failing).attainment < run().attainment


def test_random_failures_have_the_requested_rate() -> None:
    drawn = RandomFailures(90.0, 10.0).draw([f"g{n}" for n in range(100)], 10_000, np.random.default_rng(1))

    assert len(drawn) == pytest.approx(100 * 10_000 / 100, rel=0.05)
    assert sum(f.back_after_seconds or 0 for f in drawn) / len(drawn) == pytest.approx(10, rel=0.05)


@given(
    between=st.floats(0.05, 2),
    down=st.floats(0.01, 1),
    spread=st.sampled_from((0.0, 0.3)),
    error_rate=st.sampled_from((0.0, 0.1)),
    together=st.booleans(),
    others=st.sampled_from((0.0, 0.5)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=12, deadline=None)
def test_every_request_ends_once_after_any_failures(
    between: float, down: float, spread: float, error_rate: float, together: bool, others: float, seed: int
) -> None:
    report = run(
        RandomFailures(between, down),
        seconds=0.3,
        seed=seed,
        noise=Noise(spread=spread, error_rate=error_rate),
        contention=Contention(together, others),
    )

    assert accounted(report) == report.offered


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("fast-gpu-0@10", GpuFailure("fast-gpu-0", 10.0)),
        ("fast-gpu-0@1.5+2", GpuFailure("fast-gpu-0", 1.5, 2.0)),
        ("big@home-gpu-1@0", GpuFailure("big@home-gpu-1", 0.0)),
    ],
)
def test_failures_are_read(text: str, want: GpuFailure) -> None:
    assert GpuFailure.parse(text) == want


@pytest.mark.parametrize("text", ["", "fast-gpu-0", "@3", "fast-gpu-0@soon", "fast-gpu-0@1+", "fast-gpu-0@-1"])
def test_text_that_is_not_a_failure(text: str) -> None:
    with pytest.raises(ValueError, match="write it such as fast-gpu-0@10"):
        GpuFailure.parse(text)


def test_invalid_failures() -> None:
    with pytest.raises(ValueError, match="no accelerator 'other-gpu-0'"):
        run(GpuFailure("other-gpu-0", 1.0))
    with pytest.raises(ValueError, match="above 0 s"):
        RandomFailures(0, 1)
