"""`partita subclusters`: models distributed over sub-clusters, and messages about bad input."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

FOUR = """
models:
  - {name: a, rate: 30, staticMemory: 3Gi, dynamicMemory: 1Gi, subcluster: 0}
  - {name: b, rate: 10, staticMemory: 1Gi, subcluster: 0}
  - {name: c, rate: 30, staticMemory: 3Gi, subcluster: 0}
  - {name: d, rate: 10, staticMemory: 1Gi, subcluster: 1}
"""


def subclusters(directory: Path, models: str, *arguments: str) -> Result:
    file = directory / "models.yaml"
    file.write_text(models)
    return CliRunner().invoke(main, ["subclusters", str(file), "--time-limit", "2", *arguments])


def test_rates_and_memory_are_balanced(tmp_path: Path) -> None:
    result = subclusters(tmp_path, FOUR, "--clusters", "2", "-o", "json")

    assert result.exit_code == ExitCode.OK, result.output
    answer = json.loads(result.stdout)
    assert [s["rate"] for s in answer["subclusters"]] == [40, 40]
    assert [s["staticBytes"] for s in answer["subclusters"]] == [4 * 2**30, 4 * 2**30]
    assert (answer["rateImbalance"], answer["memoryImbalance"], answer["objective"]) == (0, 0, 0)


def test_the_change_cost_is_limited(tmp_path: Path) -> None:
    """A move unloads and loads a model: the one move that balances the load costs 2."""
    moved, stays = (
        json.loads(subclusters(tmp_path, FOUR, "--clusters", "2", "--max-change", cost, "-o", "json").stdout)
        for cost in ("2", "0")
    )

    assert len(moved["moved"]) == 1
    assert moved["changeCost"] == 2
    assert moved["objective"] == 0
    assert stays["moved"] == []


def test_table_shows_the_sub_cluster_of_each_model(tmp_path: Path) -> None:
    result = subclusters(tmp_path, FOUR, "--clusters", "1")

    assert "a, b, c, d" in result.stdout
    assert "proven bound" in result.stdout


@pytest.mark.parametrize(
    ("models", "arguments", "want_code", "want_message"),
    [
        pytest.param("models: [", [], ExitCode.BAD_INPUT, "is not a list of models", id="no YAML"),
        pytest.param("models: [{rate: 1}]", [], ExitCode.BAD_INPUT, "name", id="no name"),
        pytest.param("models: []", [], ExitCode.BAD_INPUT, "there are no models", id="no models"),
        pytest.param(
            "models: [{name: a, rate: .nan, staticMemory: 1Gi}]", [], ExitCode.BAD_INPUT, "rate of nan", id="NaN"
        ),
        pytest.param(
            "models: [{name: a, rate: -1, staticMemory: 1Gi}]", [], ExitCode.BAD_INPUT, "rate of -1", id="negative"
        ),
        pytest.param(
            "models: [{name: a, rate: 1, staticMemory: 1Gi, subcluster: -2}]",
            [],
            ExitCode.BAD_INPUT,
            "counted from 0",
            id="negative sub-cluster",
        ),
        pytest.param(FOUR, ["--memory", "much"], ExitCode.BAD_INPUT, "--memory much is not a quantity", id="memory"),
        pytest.param(FOUR, ["--memory", "2Gi"], ExitCode.NO_PLAN, "ModelTooLarge", id="model too large"),
        pytest.param(FOUR, ["--max-rate", "35"], ExitCode.NO_PLAN, "at least 3 sub-clusters", id="too few"),
    ],
)
def test_no_partition_is_explained(
    tmp_path: Path, models: str, arguments: list[str], want_code: ExitCode, want_message: str
) -> None:
    result = subclusters(tmp_path, models, "--clusters", "2", *arguments)

    assert result.exit_code == want_code, result.output
    assert want_message in " ".join(result.output.split())
