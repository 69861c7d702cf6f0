"""The command for a release: what it needs and what it refuses."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from partita_devtools.release.config import IMAGES
from partita_devtools.release.programs import OPTIONAL_PROGRAMS, PROGRAMS
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

ROOT = Path(__file__).parents[3]


def release(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dev", "release", "--source", str(ROOT), *arguments])


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("empty_path")
def test_a_dry_run_names_all_missing_programs_at_once_and_where_to_get_them() -> None:
    done = release("--dry-run")

    assert done.exit_code == ExitCode.FAILED
    for program, place in PROGRAMS.items():
        assert f"\n  {program}: {place}\n" in done.output
    assert done.output.endswith("To leave out their steps: --skip syft --skip cosign\n")


def test_debian_has_the_packages_that_are_proposed() -> None:
    commands = [shlex.split(place) for place in PROGRAMS.values() if place.startswith("apt-get ")]

    assert [command[:2] for command in commands] == [["apt-get", "install"]] * 3
    if shutil.which("apt-cache") is None or not shown("buildah"):
        pytest.skip("this machine has no list of Debian's packages (apt-get update)")
    assert all(shown(package) for command in commands for package in command[2:])


def shown(package: str) -> bool:
    """Whether Debian has the package."""
    return subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0


@pytest.mark.usefixtures("empty_path")
def test_a_dry_run_does_not_ask_for_what_it_skips() -> None:
    done = release("--dry-run", *(word for program in OPTIONAL_PROGRAMS for word in ("--skip", program)))

    assert {program for program in PROGRAMS if f"\n  {program}: " in done.output} == {*PROGRAMS} - {*OPTIONAL_PROGRAMS}
    assert "--skip" not in done.output


@pytest.mark.usefixtures("empty_path")
def test_a_release_needs_neither_a_registry_of_its_own_nor_a_base_if_it_has_one(tmp_path: Path) -> None:
    done = release("--registry", "ghcr.io/partita", "--base", "python:3.11-slim", "--out", str(tmp_path / "dist"))

    named = {program for program in PROGRAMS if f"\n  {program}: " in done.output}
    assert named == {"buildah", "helm", "syft", "cosign"}
    assert "--skip" not in done.output
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("arguments", [(), ("--dry-run", "--registry", "ghcr.io/partita")], ids=["neither", "both"])
def test_a_release_goes_to_a_registry_or_is_a_dry_run(arguments: tuple[str, ...]) -> None:
    done = release(*arguments)

    assert done.exit_code == ExitCode.BAD_INPUT
    assert "--dry-run" in done.output


def test_a_release_that_others_use_skips_no_step() -> None:
    done = release("--registry", "ghcr.io/partita", "--skip", "cosign")

    assert done.exit_code == ExitCode.BAD_INPUT
    assert "every step" in done.output


def test_the_dockerfile_names_the_same_images() -> None:
    described = re.findall(r"^# +(\w+) .*--build-arg EXTRAS=(\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert dict(described) == IMAGES
