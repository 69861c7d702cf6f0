"""The figures of a simulation."""

from pathlib import Path

import pytest
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.plots import (
    batch_sizes,
    goodput_against_load,
    timeline,
    utilization,
    write_plots,
)
from partita_runtime.simulation.report import LoadPoint, SimulationReport
from partita_runtime.simulation.streams import RequestStream, simulate_streams


@pytest.fixture(scope="module")
def report() -> SimulationReport:
    """A second of two pools in a row."""
    plan = plan_of(
        module("m").pipeline(4, stage("fast", replicas=2, alpha=500, beta=1000), stage("slow", replicas=3, alpha=900))
    )
    stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, 600), 30)
    return simulate_streams(plan, [stream], 1, 1, timeline=True)["m"]


def test_goodput_is_drawn_by_load() -> None:
    (axes,) = goodput_against_load([LoadPoint(200, 150), LoadPoint(100, 100)]).axes

    drawn = {str(line.get_label()): line.get_xydata().tolist() for line in axes.get_lines()}  # type: ignore[union-attr]
    assert drawn == {
        "offered": [[100, 100], [200, 200]],
        "answered in time": [[100, 100], [200, 150]],
    }


def test_every_worker_has_a_bar_of_its_utilization(report: SimulationReport) -> None:
    (axes,) = utilization(report).axes

    bars = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert bars == pytest.approx([1 - idle for idle in report.idle_by_worker.values()])
    assert "fast" in axes.get_title(loc="left")


def test_timeline_has_a_row_for_every_worker(report: SimulationReport) -> None:
    (axes,) = timeline(report.timeline).axes

    assert [label.get_text() for label in axes.get_yticklabels()] == sorted({e.worker for e in report.timeline})
    assert len(axes.collections) > 30, "batches"


def test_batch_sizes_are_counted(report: SimulationReport) -> None:
    (axes,) = batch_sizes(report).axes

    assert sum(bar.get_height() for bar in axes.patches) == sum(report.batch_sizes["m/a"].values())  # type: ignore[attr-defined]


def test_only_data_of_the_report_is_drawn(report: SimulationReport, tmp_path: Path) -> None:
    written = write_plots(tmp_path / "new" / "figures", report)

    assert {file.name for file in written} == {"utilization.png", "batch-sizes.png", "timeline.png"}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in written)
