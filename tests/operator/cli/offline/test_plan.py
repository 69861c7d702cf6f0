"""`partita plan`: strategies side by side, changes of the current plan, and exit codes for scripts."""

import json
import re
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import SessionBuilder, pool, profile, session
from tests.patience import PATIENCE_SECONDS

from partita_api.meta import SpecModel
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_operator.cli.offline.countdown import counting_down
from partita_planner.planning import plan as solve
from partita_planner.problem import Outcome, PlanningProblem
from partita_runtime.installation import extra_command

DETECTION = session("detection").slo(200).rate(50).model("detector").planner(max_stages=1)
"""One sample takes 10 ms: 100 requests/s on each of four GPUs."""


def partita(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def manifest(*resources: SpecModel) -> str:
    return yaml.safe_dump_all(r.model_dump(mode="json", by_alias=True, exclude={"status"}) for r in resources)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with manifests and profiles, where plans can be written."""
    (tmp_path / "profiles").mkdir()
    measured = profile("detector").linear(10_000, 0).batches(1).build()
    text = measured.model_dump_json(by_alias=True, exclude_none=True)
    (tmp_path / "profiles" / "detector.json").write_text(text)
    write(tmp_path, DETECTION)
    return tmp_path


def write(place: Path, *sessions: SessionBuilder) -> None:
    (place / "all.yaml").write_text(manifest(pool("fast").gpus(4).watts(100).build(), *(s.build() for s in sessions)))


def plan(place: Path, *arguments: str | Path) -> Result:
    return partita("plan", place / "all.yaml", "--profiles", place / "profiles", *arguments)


def test_elastic_pools_are_planned_with_all_that_they_may_get(place: Path) -> None:
    growing = pool("fast").elastic(4).build()
    (place / "all.yaml").write_text(manifest(growing, DETECTION.rate(380).build()))
    assert plan(place).exit_code == ExitCode.OK
    (place / "all.yaml").write_text(manifest(growing, DETECTION.rate(480).build()))
    assert plan(place).exit_code == ExitCode.NO_PLAN


def in_force(place: Path, rate: str = "50") -> Path:
    """The plan for that rate, in a file."""
    written = place / "plan.yaml"
    assert plan(place, "--rate", rate, "--out", written).exit_code == ExitCode.OK
    return written


def test_plan_shows_what_binds_and_the_runner_up(place: Path) -> None:
    result = plan(place, "--rate", "350", "-o", "json")

    (planned,) = json.loads(result.stdout)
    solution = planned["plan"]["solution"]
    assert [(c["type"], c.get("pool"), c["binding"]) for c in solution["constraints"]] == [
        ("GPUs", "fast", False),
        ("Latency", None, False),
    ]
    assert "Pools without a free accelerator: fast (4)" in solution["explanation"]
    assert "Pools without a free accelerator" in plan(place, "--rate", "350").stdout


def test_strategies_side_by_side(place: Path) -> None:
    result = plan(place, "--compare", "partita,no-partitioning", "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    (compared,) = json.loads(result.stdout)
    assert compared["session"] == "default/detection"
    for row, want in zip(compared["strategies"], ("partita", "no-partitioning"), strict=True):
        assert row["seconds"] >= 0
        desired = {
            "strategy": want,
            "feasible": True,
            "objective": "Cost",
            "value": 1.0,
            "bound": 1.0,
            "gap": 0.0,
            "allocatedPerHour": 1.0,
            "occupancyPerHour": 0.5,
            "powerWatts": 100.0,
            "throughput": 100.0,
            "gpus": {"fast": 1},
        }
        assert {key: value for key, value in row.items() if key != "seconds"} == desired


def test_comparison_gives_the_reason_for_no_plan(place: Path) -> None:
    result = plan(place, "--compare", "no-partitioning", "--rate", "1000")

    assert result.exit_code == ExitCode.NO_PLAN
    assert "no-partitioning: no plan (InsufficientCapacity)" in result.stdout
    assert "lower the rate to 400 requests/s" in " ".join(result.stdout.split())


def test_sessions_of_a_comparison_share_the_pools(place: Path) -> None:
    """Each strategy plans both sessions; the second one uses the GPUs that the first one leaves, of four."""
    write(place, DETECTION.rate(300), session("second").slo(200).rate(300).model("detector"))

    result = plan(place, "--compare", "partita,no-partitioning", "-o", "json")

    assert result.exit_code == ExitCode.NO_PLAN
    first, second = json.loads(result.stdout)
    assert [row["feasible"] for row in first["strategies"]] == [True, True]
    assert [row["gpusMissing"] for row in second["strategies"]] == [{"fast": 2}, {"fast": 2}]


def test_sessions_planned_together_share_the_pools_by_weight(place: Path) -> None:
    """Four GPUs serve 400 requests/s: one session has three times the weight of the other."""
    pair = [session(name).slo(200).rate(50).model("detector").planner(max_stages=1) for name in ("heavy", "light")]
    objectives = [{"type": "Throughput", "weight": 3}, {"type": "Throughput", "weight": 1}]
    write(place, *(s.with_spec(objective=desired) for s, desired in zip(pair, objectives, strict=True)))
    written = place / "plans.yaml"

    result = plan(place, "--together", "--out", written, "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    answer = json.loads(result.stdout)
    assert (answer["value"], answer["bound"]) == (100, 100)
    assert [s["plan"]["throughput"] for s in answer["sessions"]] == ["300", "100"]
    assert len(list(yaml.safe_load_all(written.read_text()))) == 2
    assert "together: 100 requests/s for each unit of weight; proven bound 100" in plan(place, "--together").stdout


def test_costs_of_sessions_planned_together_add_up(place: Path) -> None:
    write(place, DETECTION.rate(150), session("second").slo(200).rate(150).model("detector"))

    result = plan(place, "--together")

    assert result.exit_code == ExitCode.OK, result.output
    assert "together: 4 an hour in all; proven bound 4" in " ".join(result.stdout.split())


def test_a_plan_that_is_still_the_best_does_not_change(place: Path) -> None:
    written = in_force(place)

    table, data = plan(place, "--diff", written), plan(place, "--diff", written, "-o", "json")

    assert (table.exit_code, data.exit_code) == (ExitCode.OK, ExitCode.OK)
    assert "default/detection: nothing would change" in table.stdout
    assert json.loads(data.stdout)["changes"] == []


def test_diff_lists_the_changes_of_a_plan(place: Path) -> None:
    written = in_force(place)

    result = plan(place, "--rate", "150", "--diff", written, "-o", "json")

    assert result.exit_code == ExitCode.MISSED, result.output
    changes = {(c["where"], c["what"]): (c["before"], c["after"]) for c in json.loads(result.stdout)["changes"]}
    assert changes["module detector, blocks 0-9 on fast", "replicas of stage 0"] == ("1", "2")
    assert changes["pool fast", "accelerators"] == ("1", "2")
    assert changes["plan", "cost an hour"] == ("1", "2")
    assert "what would change" in plan(place, "--rate", "150", "--diff", written).stdout


def test_diff_without_a_new_plan(place: Path) -> None:
    result = plan(place, "--rate", "1000", "--diff", in_force(place), "-o", "json")

    assert result.exit_code == ExitCode.NO_PLAN
    assert json.loads(result.stdout)["reason"] == "InsufficientCapacity"


def test_a_written_plan_can_be_simulated(place: Path) -> None:
    written = in_force(place)

    result = partita(
        "simulate", place / "all.yaml", "--profiles", place / "profiles", "--plan", written, "--seconds", "2"
    )

    assert result.exit_code == ExitCode.OK, result.output


def test_a_plan_can_be_simulated_under_another_policy(place: Path) -> None:
    """Under overload Partita drops late requests; Ray Serve's batching has no deadlines."""
    command = ["simulate", place / "all.yaml", "--profiles", place / "profiles", "--seconds", "2", "--load", "500"]
    ours = json.loads(partita(*command, "-o", "json").stdout)
    other = json.loads(partita(*command, "-o", "json", "--policy", "ServeBatch:1").stdout)
    unknown = partita(*command, "--policy", "Hasty")

    assert ours["offered"] == other["offered"]
    assert ours["late"] == 0 < other["late"]
    assert unknown.exit_code == ExitCode.BAD_INPUT
    assert "no batching policy 'Hasty'" in unknown.output


@pytest.mark.parametrize(
    ("arguments", "want_code", "want_message"),
    [
        pytest.param(["--strategy", "magic"], ExitCode.BAD_INPUT, "'no-partitioning'", id="unknown strategy"),
        pytest.param(
            ["--compare", "partita,magic"],
            ExitCode.BAD_INPUT,
            "there is no strategy magic",
            id="unknown strategy to compare",
        ),
        pytest.param(["--compare", ","], ExitCode.BAD_INPUT, "no strategy is given", id="nothing to compare"),
        pytest.param(
            ["--compare", "partita", "--strategy", "partita"], ExitCode.BAD_INPUT, "--compare excludes", id="both"
        ),
        pytest.param(["--diff", "{place}/absent.yaml"], ExitCode.BAD_INPUT, "does not exist", id="no such file"),
        pytest.param(["--diff", "{place}/broken.yaml"], ExitCode.BAD_INPUT, "is not YAML", id="no YAML"),
        pytest.param(
            ["--diff", "{place}/all.yaml"], ExitCode.BAD_INPUT, "has 0 PipelinePlans", id="file without a plan"
        ),
        pytest.param(
            ["--diff", "{place}/other.yaml"],
            ExitCode.BAD_INPUT,
            "is a plan of session default/other, but the sessions to plan are: default/detection",
            id="plan of another session",
        ),
        pytest.param(
            ["{place}/all.yaml"], ExitCode.BAD_INPUT, "GPUPool fast is in the manifests 2 times", id="manifests twice"
        ),
        pytest.param(["--out", "{place}/absent/plan.yaml"], ExitCode.BAD_INPUT, "cannot be written", id="nowhere"),
        pytest.param(["--together", "--compare", "partita"], ExitCode.BAD_INPUT, "--together excludes", id="together"),
        pytest.param(
            ["--together", "--strategy", "ppipe"],
            ExitCode.BAD_INPUT,
            "plans each session alone; set planner.strategy to partita",
            id="plan by another strategy",
        ),
        pytest.param(["--rate", "0"], ExitCode.BAD_INPUT, "--rate", id="no rate"),
        pytest.param(["--rate", "nan"], ExitCode.BAD_INPUT, "--rate", id="rate is not a number"),
        pytest.param(
            ["--rate", "1000000000"], ExitCode.NO_PLAN, "InsufficientCapacity", id="rate too high for all GPUs"
        ),
    ],
)
def test_bad_input_is_explained(place: Path, arguments: list[str], want_code: ExitCode, want_message: str) -> None:
    (place / "broken.yaml").write_text("a: [")
    other: dict[str, Any] = yaml.safe_load(in_force(place).read_text())
    other["spec"]["session"]["name"] = "other"
    (place / "other.yaml").write_text(yaml.safe_dump(other))

    result = plan(place, *(argument.format(place=place) for argument in arguments))

    assert result.exit_code == want_code, result.output
    assert want_message in " ".join(result.output.split())


def test_pool_without_a_manifest(place: Path) -> None:
    write(place, DETECTION.with_spec(pools=("fast", "h100")))

    result = plan(place)

    assert result.exit_code == ExitCode.BAD_INPUT
    assert "spec.pools names h100, but the known GPUPools are: fast" in " ".join(result.stdout.split())


def test_figures_are_written_for_each_session(place: Path) -> None:
    result = plan(place, "--plots", place / "figures")

    assert result.exit_code == ExitCode.OK, result.output
    written = list((place / "figures").iterdir())
    assert {file.name for file in written} == {f"detection-{what}.png" for what in ("pipelines", "latency", "pools")}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in written)


def test_a_session_without_plan_has_no_figures(place: Path) -> None:
    result = plan(place, "--plots", place / "figures", "--rate", "100000")

    assert result.exit_code == ExitCode.NO_PLAN
    assert not (place / "figures").exists()


def test_without_matplotlib_the_command_that_installs_it_is_given(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("partita_runtime.figures", "partita_operator.cli.offline.plan_plots"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    result = plan(place, "--plots", place / "figures")

    assert result.exit_code == ExitCode.BAD_INPUT
    assert extra_command("plots") in result.output


def test_a_long_solution_says_the_time_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = Event()
    lines: list[str] = []

    def slowly(problem: PlanningProblem, **options: float) -> Outcome:
        assert reported.wait(PATIENCE_SECONDS)
        return solve(problem, **options)

    def report(line: str) -> None:
        lines.append(line)
        reported.set()

    monkeypatch.setattr("partita_operator.cli.offline.plan.solve", slowly)
    monkeypatch.setattr("partita_operator.cli.offline.countdown.report", report)
    monkeypatch.setattr("partita_operator.cli.offline.countdown.EVERY_S", 0.01)
    write(place, DETECTION.planner(time_limit_seconds=300))

    assert plan(place).exit_code == ExitCode.OK
    assert re.fullmatch(r" +0 s  planning detection; at most 300 s left", lines[0])


def test_a_solution_beyond_its_limit_has_no_negative_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = Event()
    lines: list[str] = []
    monkeypatch.setattr(
        "partita_operator.cli.offline.countdown.report", lambda line: (lines.append(line), reported.set())
    )
    monkeypatch.setattr("partita_operator.cli.offline.countdown.EVERY_S", 0.01)
    with counting_down("planning", 0.0):
        assert reported.wait(PATIENCE_SECONDS)
    assert lines[0].endswith("s  planning; its limit has passed; it ends soon")
