"""The figures of `partita plan --plots`."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import pool, profile, session

from partita_api.pipelineplan import PipelinePlanSpec
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_operator.cli.offline.plan_plots import latency_budgets, pipelines, pools
from partita_runtime.installation import extra_command

TRAFFIC = session("traffic").slo(100).chain("detect", "crop", "car")


def stage(pool: str, blocks: tuple[int, int], replicas: int, millis: int) -> dict[str, Any]:
    first, end = blocks
    return {"pool": pool, "blocks": {"first": first, "end": end}, "replicas": replicas, "latencyMicros": millis * 1000}


def module(name: str, millis: int, *stages: dict[str, Any]) -> dict[str, Any]:
    """A module with one pipeline."""
    pipeline = {"name": "a", "batchSize": 4, "throughput": 50, "stages": stages}
    return {"name": name, "rate": 50, "budgetMicros": millis * 1000, "pipelines": [pipeline]}


PLAN = PipelinePlanSpec.model_validate(
    {
        "session": {"name": "traffic"},
        "inputsDigest": "0",
        "solution": {"strategy": "partita", "objective": "Cost", "value": 1, "bound": 1, "gap": 0, "seconds": 1},
        "cost": {"allocatedPerHour": 1, "occupancyPerHour": 1},
        "throughput": 50,
        "modules": [
            module("detect", 40, stage("fast", (0, 4), 2, 10), stage("slow", (4, 10), 3, 10)),
            module("crop", 5, stage("fast", (0, 10), 1, 2)),
            module("car", 30, stage("slow", (0, 10), 1, 5)),
        ],
    }
)


def bars(axes: Any) -> list[tuple[float, float, float]]:
    """Row, begin and width of all bars that are drawn, except those of the legend."""
    found = []
    for bar in axes.collections:
        for path in bar.get_paths():
            box = path.get_extents()
            found.append(((box.y0 + box.y1) / 2, box.x0, box.width))
    return [(round(row), round(begin, 3), round(width, 3)) for row, begin, width in found]


def test_each_stage_has_a_bar_over_its_blocks() -> None:
    (axes,) = pipelines(PLAN).axes

    stages = [(s.blocks.first, s.blocks.end - s.blocks.first) for _, _, _, s in PLAN.stages()]
    assert [(begin, width) for _, begin, width in bars(axes)] == stages
    assert [text.get_text() for text in axes.texts] == [
        "2 × fast, 10.0 ms",
        "3 × slow, 10.0 ms",
        "1 × fast, 2.0 ms",
        "1 × slow, 5.0 ms",
    ]


def test_pools_differ_in_their_pattern() -> None:
    (axes,) = pipelines(PLAN).axes

    fast, slow, fast_again, slow_again = [bar.get_hatch() for bar in axes.collections[:4]]
    assert fast != slow
    assert (fast_again, slow_again) == (fast, slow)


def test_budgets_follow_the_longest_path() -> None:
    (axes,) = latency_budgets(TRAFFIC.build(), PLAN).axes

    drawn = bars(axes)
    assert {(0, 0, 40), (1, 40, 5), (2, 45, 30)} <= set(drawn), "budgets: row, begin, milliseconds"
    assert {(0, 20, 10), (0, 30, 10), (2, 70, 5)} <= set(drawn), "stages at the end of their budget"


def test_pools_have_their_accelerators_and_those_taken() -> None:
    (axes,) = pools(PLAN, {"fast": 4, "slow": 6, "unused": 2}).axes

    assert bars(axes) == [(0, 0, 4), (0, 0, 3), (1, 0, 6), (1, 0, 4), (2, 0, 2)]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A session that has a plan, its pool and its profile."""
    (tmp_path / "profiles").mkdir()
    measured = profile("detector").linear(10_000, 0).batches(1).build()
    (tmp_path / "profiles" / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    made = pool("fast").gpus(4).build(), session("detection").slo(200).rate(50).model("detector").build()
    documents = [resource.model_dump(mode="json", by_alias=True, exclude={"status"}) for resource in made]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    return tmp_path


def plan(place: Path, *arguments: str) -> Result:
    command = ["plan", str(place / "all.yaml"), "--profiles", str(place / "profiles"), "--explain", "0", *arguments]
    return CliRunner().invoke(main, [*command, "--plots", str(place / "figures")])


def test_figures_are_written_for_each_session(manifests: Path) -> None:
    result = plan(manifests)

    assert result.exit_code == ExitCode.OK, result.output
    written = list((manifests / "figures").iterdir())
    assert {file.name for file in written} == {f"detection-{what}.png" for what in ("pipelines", "latency", "pools")}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in written)


def test_a_session_without_plan_has_no_figures(manifests: Path) -> None:
    result = plan(manifests, "--rate", "100000")

    assert result.exit_code == ExitCode.NO_PLAN
    assert not (manifests / "figures").exists()


def test_without_matplotlib_the_command_that_installs_it_is_given(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("partita_runtime.figures", "partita_operator.cli.offline.plan_plots"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    result = plan(manifests)

    assert result.exit_code == ExitCode.BAD_INPUT
    assert extra_command("plots") in result.output
