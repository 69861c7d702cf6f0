"""Summaries of how requests ended."""

import csv
import io
import json

import pytest
from rich.console import Console

from partita_runtime.load.report import RequestRecord, records_csv, summarize
from partita_runtime.load.table import report_table


def record(scheduled: float, latency: float, outcome: str = "200", lag: float = 0.0) -> RequestRecord:
    return RequestRecord(scheduled, scheduled + lag, scheduled + latency, outcome)


MIXED = (
    record(0.1, 0.050),
    record(0.2, 0.099),
    record(0.9, 0.101),
    record(1.5, 0.030, "503"),
    record(2.5, 9.000, "timeout"),
    record(3.9, 0.020),
)


def test_only_answers_within_the_slo_are_goodput() -> None:
    report = summarize(MIXED, slo_s=0.1, duration_s=4.0)

    assert report.requests == 6
    assert report.attainment == pytest.approx(3 / 6)
    assert report.goodput == pytest.approx(3 / 4)
    assert report.offered_rate == pytest.approx(6 / 4)
    assert report.outcomes == {"200": 4, "503": 1, "timeout": 1}


def test_seconds_add_up_to_the_whole() -> None:
    seconds = summarize(MIXED, slo_s=0.1, duration_s=4.0).seconds

    assert [(s.offered, s.good, s.late, s.failed) for s in seconds] == [
        (3, 2, 1, 0),
        (1, 0, 0, 1),
        (1, 0, 0, 1),
        (1, 1, 0, 0),
    ]
    assert [s.p99_ms for s in seconds][1:3] == [None, None]


def test_percentiles_are_of_answered_requests() -> None:
    report = summarize([record(i / 100, (i + 1) / 1000) for i in range(100)], slo_s=1.0, duration_s=1.0)

    assert report.p50_ms == pytest.approx(50.5)
    assert report.p99_ms == pytest.approx(99.01)
    assert report.max_ms == pytest.approx(100)
    assert report.latency_percentiles_ms[0] == pytest.approx(1)
    assert len(report.latency_percentiles_ms) == 101
    assert list(report.latency_percentiles_ms) == sorted(report.latency_percentiles_ms)


@pytest.mark.parametrize(
    ("lag", "want_warnings"), [pytest.param(0.004, 0, id="in time"), pytest.param(0.006, 1, id="late")]
)
def test_late_generator_gives_a_warning(lag: float, want_warnings: int) -> None:
    report = summarize([record(0.0, 0.05, lag=lag)] * 10, slo_s=0.1, duration_s=1.0)

    assert len(report.warnings) == want_warnings


def test_delays_of_the_generator_are_separate_from_those_of_the_server() -> None:
    assert record(1.0, 0.5, lag=0.4).latency_s == pytest.approx(0.5)
    assert not record(1.0, 0.5, lag=0.4).is_good(0.2)


def test_json_has_every_figure() -> None:
    report = summarize(MIXED, slo_s=0.1, duration_s=4.0)

    document = json.loads(report.to_json())

    assert document["attainment"] == 0.5
    assert document["outcomes"] == {"200": 4, "503": 1, "timeout": 1}
    assert len(document["seconds"]) == 4


def test_csv_has_one_line_per_request() -> None:
    lines = list(csv.DictReader(io.StringIO(records_csv(MIXED))))

    assert len(lines) == 6
    assert lines[4]["outcome"] == "timeout"
    assert float(lines[1]["latency_s"]) == pytest.approx(0.099)


@pytest.mark.parametrize(
    ("records", "want"),
    [
        pytest.param(MIXED, ["50.00% within 100 ms", "0.8 requests/s", "Outcome 503"], id="mixed"),
        pytest.param((record(0.1, 5.0, "timeout"),), ["0.00% within", "no answer"], id="nothing answered"),
    ],
)
def test_table_has_the_figures_of_the_report(records: tuple[RequestRecord, ...], want: list[str]) -> None:
    console = Console(width=100, file=io.StringIO())

    console.print(report_table(summarize(records, slo_s=0.1, duration_s=4.0)))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in want:
        assert part in text
