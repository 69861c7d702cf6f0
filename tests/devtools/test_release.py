"""A release: its parts have one version, its programs are named if they are missing, its workflow is valid."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from partita_devtools.cli.dev import dev
from partita_devtools.errors import DevError
from partita_devtools.release.config import IMAGES
from partita_devtools.release.programs import PROGRAMS, missing_programs, require_programs
from partita_devtools.release.version import release_version
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
PLACES = ("pyproject.toml", "devtools/pyproject.toml", "charts/partita/Chart.yaml")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of the repository that name its version."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    return tmp_path


def test_all_parts_have_one_version() -> None:
    version = release_version(ROOT)

    assert release_version(ROOT, tag=f"v{version}") == version


@pytest.mark.parametrize("place", PLACES)
def test_a_part_with_another_version_is_named(place: str, source: Path) -> None:
    text = (source / place).read_text()
    (source / place).write_text(text.replace(release_version(source), "9.9.9", 1))

    with pytest.raises(DevError, match=rf"{re.escape(place)}.*: 9\.9\.9"):
        release_version(source)


def test_a_tag_of_another_version_is_refused() -> None:
    with pytest.raises(DevError, match=r"tag v9\.9\.9: 9\.9\.9"):
        release_version(ROOT, tag="v9.9.9")


def test_missing_programs_are_named_with_where_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert missing_programs() == PROGRAMS.keys()
    with pytest.raises(DevError) as raised:
        require_programs(skipped={"syft"})
    for program, source in PROGRAMS.items():
        assert (f"{program} ({source})" in str(raised.value)) is (program != "syft")


@pytest.mark.parametrize("arguments", [(), ("--dry-run", "--registry", "ghcr.io/partita")], ids=["neither", "both"])
def test_a_release_goes_to_a_registry_or_is_a_dry_run(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["dev", "release", *arguments])

    assert done.exit_code == ExitCode.BAD_INPUT
    assert "--dry-run" in done.output


def test_the_dockerfile_names_the_same_images() -> None:
    described = re.findall(r"^# +(\w+) .*--build-arg EXTRAS=(\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert dict(described) == IMAGES


@pytest.mark.parametrize("workflow", sorted(path.name for path in WORKFLOWS.iterdir()))
def test_workflows_are_valid(workflow: str) -> None:
    command = ["check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOWS / workflow)]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_a_linter_finds_nothing_unsafe_in_the_workflows() -> None:
    """Such as a token with more rights than needed, or text of a tag in a shell command."""
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run([zizmor, "--offline", WORKFLOWS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", sorted(path.name for path in WORKFLOWS.iterdir()))
def test_workflows_use_actions_by_commit(workflow: str) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.search(r"@[0-9a-f]{40}$", step["uses"]), step["uses"]


def test_the_workflow_calls_the_command_with_options_that_exist() -> None:
    (command,) = [step["run"] for step in steps("release.yaml") if "dev release" in step.get("run", "")]
    release = dev.commands["release"]
    assert isinstance(release, click.Command)
    known = {option for parameter in release.params for option in parameter.opts}

    assert set(re.findall(r"--[\w-]+", command)) <= known


def steps(workflow: str) -> list[dict[str, Any]]:
    jobs = yaml.safe_load((WORKFLOWS / workflow).read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]
