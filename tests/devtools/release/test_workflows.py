"""The workflows are valid, run what exists, and install the versions that a dry run asks for."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from partita_devtools.cli.dev import dev
from partita_devtools.release.programs import PROGRAMS

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
INSTALLED = {"helm": "version", "syft": "syft-version", "cosign": "cosign-release"}
"""The programs that the workflow of a release installs, and the setting of the step with the version."""


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


@pytest.mark.parametrize("program", INSTALLED)
def test_the_workflow_installs_the_version_that_a_dry_run_asks_for(program: str) -> None:
    (version,) = [
        step["with"][INSTALLED[program]]
        for step in steps("release.yaml")
        if program in step.get("uses", "") and INSTALLED[program] in step.get("with", {})
    ]

    assert PROGRAMS[program].endswith(f"/{version}")


def steps(workflow: str) -> list[dict[str, Any]]:
    jobs = yaml.safe_load((WORKFLOWS / workflow).read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]
