"""`partita dev nodes`: what its arguments mean, and what is said of those that mean nothing."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from partita_devtools.cli.nodes import build_argument, node_spec
from partita_devtools.errors import DevError
from partita_devtools.nodes.debian_packages import IMAGE_PACKAGES, NODE_PACKAGES, require_packages
from partita_devtools.nodes.node import NodeSpec
from partita_operator.cli.main import main


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("control", NodeSpec("control"), id="no GPU"),
        pytest.param("t4=Tesla-T4:2", NodeSpec("t4", "Tesla-T4", 2), id="all CPUs"),
        pytest.param("l4=NVIDIA-L4:4:1.5", NodeSpec("l4", "NVIDIA-L4", 4, 1.5), id="some CPUs"),
    ],
)
def test_a_node_is_named_with_its_gpus_and_cpus(text: str, want: NodeSpec) -> None:
    assert node_spec(text) == want


@pytest.mark.parametrize("text", ["t4=Tesla-T4", "t4=Tesla-T4:many", "t4=Tesla-T4:4:fast", "t4=Tesla-T4:4:1:1"])
def test_a_node_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"such as l4=NVIDIA-L4:4:1\.5"):
        node_spec(text)


@pytest.mark.parametrize("text", ["EXTRAS", "=operator"])
def test_a_build_argument_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        build_argument(text)


@pytest.mark.parametrize("command", [["status"], ["image", "some:tag"]])
def test_without_nodes_the_way_to_have_some_is_said(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["dev", "nodes", *command, "--state-dir", str(tmp_path / "none")])

    assert result.exit_code == 1
    assert "partita dev nodes up" in result.output


def test_down_without_nodes_does_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["dev", "nodes", "down", "--state-dir", str(tmp_path / "none")])

    assert result.exit_code == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("packages", [NODE_PACKAGES, IMAGE_PACKAGES], ids=["nodes", "images"])
def test_missing_packages_are_named_with_the_command_that_installs_them(
    packages: Mapping[str, str],
) -> None:
    absent = {f"/nowhere/{program}": package for program, package in packages.items()}
    with pytest.raises(DevError) as raised:
        require_packages(absent)
    command = shlex.split(str(raised.value).partition("install them with: ")[2])

    assert command == ["apt-get", "install", *packages.values()]
    if shutil.which("apt-cache") is None or not shown("buildah"):
        pytest.skip("this machine has no list of Debian's packages (apt-get update)")
    assert all(shown(package) for package in command[2:])


def shown(package: str) -> bool:
    """Whether Debian has the package."""
    done = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    return done.returncode == 0
