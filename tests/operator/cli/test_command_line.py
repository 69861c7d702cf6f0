"""The `partita` command: help, output formats, exit codes, and messages about bad input."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import PoolBuilder, pool, profile, session

from partita_api.crd_schema import KINDS
from partita_api.meta import SpecModel
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import DEVTOOLS, SUBCOMMANDS, main
from partita_operator.settings.fields import all_settings
from partita_runtime.installation import devtools_command, extra_command

DETECTION = session("detection").slo(200).rate(50).model("detector")


def partita(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A directory with a pool of four accelerators, and a session of one model."""
    return write_manifests(tmp_path, pool("fast").gpus(4))


def write_manifests(directory: Path, on: PoolBuilder) -> Path:
    folder = directory / "manifests"
    folder.mkdir()
    documents: list[SpecModel] = [on.build(), DETECTION.build()]
    (folder / "all.yaml").write_text(
        yaml.safe_dump_all(d.model_dump(mode="json", by_alias=True, exclude={"status"}) for d in documents)
    )
    return folder


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A directory with the profile of that model on that pool."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    measured = profile("detector").on("fast").linear(1000, 5000).build()
    (folder / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    return folder


@pytest.mark.parametrize("command", list(SUBCOMMANDS))
def test_every_subcommand_has_help(command: str) -> None:
    result = partita(command, "--help")

    assert result.exit_code == ExitCode.OK, result.output
    assert "Usage:" in result.output


def test_crds_are_written_once_and_checked(tmp_path: Path) -> None:
    missing = partita("crds", "--check", "--out", tmp_path)
    written = partita("crds", "--out", tmp_path)
    again = partita("crds", "--out", tmp_path)
    checked = partita("crds", "--check", "--out", tmp_path)

    assert missing.exit_code == ExitCode.FAILED
    assert written.output.count("wrote") == len(KINDS)
    assert again.output == ""
    assert checked.exit_code == ExitCode.OK


def test_plan_in_every_format(manifests: Path, profiles: Path) -> None:
    table = partita("plan", manifests, "--profiles", profiles)
    as_json = CliRunner().invoke(main, ["plan", str(manifests), "--profiles", str(profiles), "-o", "json"])

    assert table.exit_code == ExitCode.OK, table.output
    assert "detector" in table.stdout
    (planned,) = json.loads(as_json.stdout)
    assert planned["session"] == "default/detection"
    assert float(planned["plan"]["throughput"]) >= 50


def test_plan_names_what_is_missing(manifests: Path, profiles: Path) -> None:
    result = partita("plan", manifests, "--profiles", profiles, "--rate", "100000", "-o", "json")

    assert result.exit_code == ExitCode.NO_PLAN
    (refused,) = json.loads(result.stdout)
    assert refused["reason"] == "InsufficientCapacity"
    assert refused["largestRate"] < 100000


def test_simulation_is_reproducible(manifests: Path, profiles: Path) -> None:
    runs = [
        partita("simulate", manifests, "--profiles", profiles, "--seconds", "5", "--seed", seed, "-o", "json")
        for seed in ("1", "1", "2")
    ]

    assert [run.exit_code for run in runs] == [ExitCode.OK] * 3, runs[0].output
    assert runs[0].stdout == runs[1].stdout != runs[2].stdout
    assert json.loads(runs[0].stdout)["attainment"] > 0.99


def test_simulated_overload_misses_the_slo(manifests: Path, profiles: Path) -> None:
    result = partita("simulate", manifests, "--profiles", profiles, "--load", "5000", "--seconds", "3")

    assert result.exit_code == ExitCode.MISSED, result.output


@pytest.mark.parametrize(
    ("arguments", "want_code", "want_message"),
    [
        pytest.param(["plan"], ExitCode.BAD_INPUT, "Missing argument", id="no manifests"),
        pytest.param(["plan", "{empty}", "--profiles", "{profiles}"], ExitCode.BAD_INPUT, "no YAML", id="empty folder"),
        pytest.param(["plan", "{broken}", "--profiles", "{profiles}"], ExitCode.BAD_INPUT, "spec.slo", id="bad SLO"),
        pytest.param(
            ["plan", "{manifests}", "--profiles", "{empty}"], ExitCode.BAD_INPUT, "partita profile", id="no profiles"
        ),
        pytest.param(
            ["plan", "{manifests}", "--profiles", "{profiles}", "--session", "other"],
            ExitCode.BAD_INPUT,
            "they have: detection",
            id="unknown session",
        ),
        pytest.param(
            ["load", "http://127.0.0.1:9/default/detection", "--slo-ms", "100"],
            ExitCode.FAILED,
            "is the session Ready?",
            id="no frontend",
        ),
        pytest.param(["dev", "status", "--state-dir", "{empty}"], ExitCode.FAILED, "partita dev up", id="nothing runs"),
        pytest.param(["dev", "up", "--pool", "fast"], ExitCode.BAD_INPUT, "fast=4", id="pool without slots"),
        pytest.param(
            ["operator", "run", "--profiling-versions", "[]"],
            ExitCode.BAD_INPUT,
            "profiling.versions: ",
            id="not an object",
        ),
        pytest.param(
            ["operator", "run", "--config", "{broken}"], ExitCode.BAD_INPUT, "is not YAML", id="no config file"
        ),
        pytest.param(["demo", "--example", "{empty}"], ExitCode.FAILED, "examples/ocr", id="no example"),
    ],
)
def test_bad_input_is_explained(
    arguments: list[str], want_code: ExitCode, want_message: str, tmp_path: Path, manifests: Path, profiles: Path
) -> None:
    empty, broken = tmp_path / "empty", tmp_path / "broken.yaml"
    empty.mkdir()
    text = (manifests / "all.yaml").read_text()
    broken.write_text(text.replace("latencyMs: 200", "latencyMs: -1"))
    places = {"empty": empty, "broken": broken, "manifests": manifests, "profiles": profiles}

    result = partita(*(argument.format(**places) for argument in arguments))

    assert result.exit_code == want_code, result.output
    assert want_message in result.output


def test_the_proposed_command_for_missing_profiles_runs(manifests: Path, tmp_path: Path) -> None:
    empty = tmp_path / "no profiles"
    empty.mkdir()
    refused = partita("plan", manifests, "--profiles", empty)
    proposed = refused.output.partition("make them with: ")[2]
    name, *arguments = shlex.split(proposed)
    assert name == "partita"
    assert partita(*arguments, "--help").exit_code == ExitCode.OK
    assert arguments == ["profile", str(manifests), "--out", str(empty)]


def test_the_proposed_command_for_old_crds_updates_them(tmp_path: Path) -> None:
    place = tmp_path / "my crds"
    complaints = partita("crds", "--check", "--out", place).output.splitlines()
    name, *arguments = shlex.split(complaints[0].partition("run: ")[2])
    assert name == "partita"
    assert partita(*arguments).exit_code == ExitCode.OK
    assert partita("crds", "--check", "--out", place).exit_code == ExitCode.OK


@pytest.mark.parametrize(
    ("missing", "command", "want_install"),
    [
        pytest.param("kopf", "operator", extra_command("operator"), id="operator"),
        pytest.param("aiohttp", "load", extra_command("load"), id="load"),
        pytest.param("partita_devtools", "dev", devtools_command(), id="devtools"),
    ],
)
def test_a_missing_extra_is_named_with_its_install_command(
    missing: str, command: str, want_install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(_: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("partita_operator.cli.main.importlib.import_module", without)
    result = partita(command, "--help")
    assert result.exit_code == ExitCode.FAILED
    assert f"`partita {command}` needs {missing}; install it with: {want_install}" in result.output


@pytest.mark.parametrize("installed", [True, False], ids=["with devtools", "without"])
def test_help_lists_only_commands_that_are_installed(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita_operator.cli.main._is_installed", lambda target: installed or DEVTOOLS not in target)
    listed = {line.split()[0] for line in partita("--help").output.splitlines() if line.startswith("  ")}
    assert ({"dev", "demo"} <= listed) is installed
    assert {"plan", "operator", "top"} <= listed


def test_a_webhook_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").touch()
    result = partita("operator", "run", "--admission-enabled", "true", "--admission-certificate-directory", tmp_path)
    assert result.exit_code != ExitCode.OK
    assert "has no tls.key for the admission webhook" in result.output


def test_the_operator_s_settings_are_printed_without_starting_it(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("profiling: {attempts: 5}")
    result = partita("operator", "settings", "--config", config, "--namespaces", "a", "--namespaces", "b")
    assert result.exit_code == ExitCode.OK, result.output
    shown = yaml.safe_load(result.output)
    assert (shown["profiling"]["attempts"], shown["namespaces"]) == (5, ["a", "b"])


def test_every_setting_except_secrets_has_a_flag() -> None:
    words = partita("operator", "run", "--help").output.split()
    assert {s.flag for s in all_settings() if s.secret is None} <= set(words)
    assert not {s.flag for s in all_settings() if s.secret is not None} & set(words)
