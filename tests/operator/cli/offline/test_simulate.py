"""`partita simulate`: arrivals from a file, and the executions of every vGPU."""

import csv
import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import pool, profile, session

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_runtime.installation import extra_command


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a pool of four GPUs, a session and its profile: one sample takes 10 ms."""
    (tmp_path / "profiles").mkdir()
    measured = profile("detector").linear(10_000, 0).batches(1).build()
    (tmp_path / "profiles" / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    detection = session("detection").slo(200).rate(50).model("detector").planner(max_stages=1)
    resources = (pool("fast").gpus(4).build(), detection.build())
    documents = (resource.model_dump(mode="json", by_alias=True, exclude={"status"}) for resource in resources)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    return tmp_path


def simulate(place: Path, *arguments: str | Path) -> Result:
    command = ["simulate", place / "all.yaml", "--profiles", place / "profiles", "--seconds", "2", *arguments]
    return CliRunner().invoke(main, [str(argument) for argument in command])


def test_arrivals_come_from_a_trace(place: Path) -> None:
    (place / "gaps").write_text("# seconds\n0.5\n0.25\n")
    result = simulate(place, "--trace", place / "gaps", "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    assert json.loads(result.stdout)["offered"] == 4, "at 0.5, 0.75, 1.25 and 1.5 s"


def test_a_bad_trace_is_refused(place: Path) -> None:
    (place / "gaps").write_text("soon\n")
    result = simulate(place, "--trace", place / "gaps")

    assert result.exit_code == ExitCode.BAD_INPUT
    assert "line 1 of the trace" in result.output


def test_executions_are_written(place: Path) -> None:
    result = simulate(place, "--executions", place / "executions.csv", "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    report = json.loads(result.stdout)
    with (place / "executions.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert report["timeline"] == []
    assert sum(int(row["batch_size"]) for row in rows) == report["in_time"]
    assert {int(row["end_micros"]) - int(row["start_micros"]) for row in rows} == {10_000}
    assert {row["module"] for row in rows} == {"detector"}


def test_replicas_follow_the_load(place: Path) -> None:
    result = simulate(place, "--autoscale", "--start-up", "5", "--load", "0:50,10:250", "--seconds", "60", "-o", "json")

    report = json.loads(result.stdout)
    held = [step["gpus"]["fast"] for step in report["scaling"]]
    assert held[0] == 1
    assert max(held) >= 3, "250 requests/s of 10 ms each"
    assert all("reason" in step for step in report["scaling"])


def test_accelerators_fail(place: Path) -> None:
    result = simulate(place, "--fail", "fast-gpu-0@0.5+1", "-o", "json")

    assert result.exit_code == ExitCode.MISSED, result.output
    report = json.loads(result.stdout)
    assert report["dropped"]["NoWorkers"] > 20
    assert report["in_time"] + report["late"] + sum(report["dropped"].values()) == report["offered"]


def test_options_for_conditions_are_used(place: Path) -> None:
    result = simulate(place, "--random-failures", "0.05,1", "--contention", "0.3", "-o", "json")

    assert result.exit_code == ExitCode.MISSED, result.output


@pytest.mark.parametrize(
    ("arguments", "want_words"),
    [
        pytest.param(["--fail", "fast-gpu-0"], "such as fast-gpu-0@10", id="not a time"),
        pytest.param(["--fail", "slow-gpu-0@1"], "no accelerator 'slow-gpu-0' to fail", id="no such accelerator"),
        pytest.param(["--random-failures", "often"], "such as 3600,60", id="not a pair"),
        pytest.param(["--random-failures", "0,1"], "above 0 s", id="no time between failures"),
        pytest.param(["--contention", "1"], "contention", id="a network without a share left"),
    ],
)
def test_invalid_conditions(place: Path, arguments: list[str], want_words: str) -> None:
    result = simulate(place, *arguments)

    assert result.exit_code != ExitCode.OK
    assert want_words in result.output


def test_figures_are_written(place: Path) -> None:
    result = simulate(place, "--plots", place / "figures", "--autoscale", "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    written = {file.name for file in (place / "figures").iterdir()}
    assert written == {f"{name}.png" for name in ("goodput", "utilization", "timeline", "batch-sizes", "gpus")}
    assert json.loads(result.stdout)["timeline"] == []


def test_figures_without_matplotlib(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("partita_runtime.figures", "partita_runtime.simulation.plots"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    result = simulate(place, "--plots", place / "figures")

    assert result.exit_code == ExitCode.BAD_INPUT
    assert extra_command("plots") in result.output
    assert not (place / "figures").exists()
