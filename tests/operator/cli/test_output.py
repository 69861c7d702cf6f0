"""Output: every command that prints a result has `--output text|json|yaml`, or `-o`; progress says the time left."""

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.operator.cli.command_tree import leaf_commands

from partita_api.crd_schema import KINDS, crd
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_operator.cli.output import time_left
from partita_operator.settings.json_schema import values_schema

WITHOUT_RESULT = {
    "completion": "prints a script for a shell",
    "init": "prints a manifest for people, with comments",
    "console": "serves pages until it is stopped",
    "operator run": "runs until it is stopped",
    "local down": "reports progress only",
    "local logs": "prints lines of files as they are, also endlessly",
    "dev down": "reports progress only",
    "dev nodes down": "reports progress only",
    "dev nodes image": "reports progress only",
}


def partita(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("name", "command"), leaf_commands().items(), ids=leaf_commands())
def test_results_have_an_output_format(name: str, command: click.Command) -> None:
    options = [o for o in command.params if isinstance(o, click.Option) and {"-o", "--output"} & set(o.opts)]
    if name in WITHOUT_RESULT:
        assert not options
        return
    (option,) = options
    assert set(option.opts) == {"--output", "-o"}
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == ["text", "json", "yaml"]


def test_exceptions_are_commands() -> None:
    assert WITHOUT_RESULT.keys() <= leaf_commands().keys()


def test_crds_are_one_list_for_programs() -> None:
    documents = list(yaml.safe_load_all(partita("crds").stdout))
    as_json = json.loads(partita("crds", "-o", "json").stdout)
    assert documents == as_json["items"] == [crd(kind) for kind in KINDS]
    assert yaml.safe_load(partita("crds", "-o", "yaml").stdout) == as_json
    assert (as_json["apiVersion"], as_json["kind"]) == ("v1", "List")


def test_the_state_of_each_crd_file(tmp_path: Path) -> None:
    def states(*arguments: str) -> tuple[int, set[str]]:
        result = partita("crds", "--out", tmp_path, "-o", "json", *arguments)
        files = json.loads(result.stdout)
        assert {Path(file["file"]).name for file in files} == {f"{kind.plural}.yaml" for kind in KINDS}
        return result.exit_code, {file["state"] for file in files}

    assert states("--check") == (ExitCode.FAILED, {"stale"})
    assert states() == (ExitCode.OK, {"written"})
    assert states() == (ExitCode.OK, {"current"})
    assert states("--check") == (ExitCode.OK, {"current"})


def test_settings_in_every_format() -> None:
    text = partita("operator", "settings", "--health-port", "1234").stdout
    as_json = partita("operator", "settings", "--health-port", "1234", "-o", "json").stdout
    assert yaml.safe_load(text) == json.loads(as_json)
    assert json.loads(as_json)["health"]["port"] == 1234
    assert json.loads(partita("operator", "settings", "--schema").stdout) == values_schema()
    assert yaml.safe_load(partita("operator", "settings", "--schema", "-o", "yaml").stdout) == values_schema()


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "want"),
    [
        pytest.param(0, 4, 10.0, "", id="nothing is done"),
        pytest.param(1, 4, 10.0, "about 30 s left", id="seconds"),
        pytest.param(1, 4, 100.0, "about 5 min left", id="minutes"),
        pytest.param(4, 4, 100.0, "about 0 s left", id="all is done"),
    ],
)
def test_progress_says_the_time_left(done: int, total: int, elapsed_s: float, want: str) -> None:
    assert time_left(done, total, elapsed_s) == want
