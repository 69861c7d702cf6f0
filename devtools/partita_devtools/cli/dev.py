"""`partita dev`: starts and stops a Kubernetes control plane and a Ray cluster on this machine."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from os import pathsep
from pathlib import Path
from shutil import which
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table

from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.interruption import stopped_if_interrupted
from partita_devtools.cli.nodes import nodes
from partita_devtools.cli.release import release
from partita_devtools.environment import (
    DEFAULT_RAY,
    DEFAULT_STATE_DIR,
    ApiServerChoice,
    DevConfig,
    DevEnvironment,
    dev_down,
    dev_status,
    dev_up,
)
from partita_devtools.errors import DevError
from partita_devtools.operator_process import operator_running, start_operator, stop_operator
from partita_devtools.ray_cluster.commands import RayClassNode
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.output import OutputFormat, emit, output_option, report

EXAMPLE: Final = Path(__file__).parents[3] / "examples/hello/manifests"
"""A session on the pools of DEFAULT_RAY. Only a checkout of the repository has it."""

F = TypeVar("F", bound=Callable[..., Any])

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="Folder for state, kubeconfig and logs.",
)


def api_server_option(default: ApiServerChoice) -> Callable[[F], F]:
    """Adds `--api-server`, passed as `api_server: ApiServerChoice`."""
    return click.option(
        "--api-server",
        type=click.Choice([str(choice) for choice in ApiServerChoice]),
        default=str(default),
        callback=lambda _context, _parameter, value: ApiServerChoice(value),
        show_default=True,
        help="kubernetes: an existing cluster, else a control plane, which is downloaded or built the first time; "
        "embedded: one process for Partita's kinds only; at-hand: kubernetes unless that needs a download or a build.",
    )


def pool_node(text: str) -> RayClassNode:
    """The Ray node of NAME=SLOTS, such as fast=4."""
    name, _, slots = text.partition("=")
    try:
        return RayClassNode(name, slots=float(slots), real_models=True)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not of the form NAME=SLOTS, such as fast=4") from None


@click.group()
def dev() -> None:
    """Run a control plane and a Ray cluster on this machine."""


dev.add_command(nodes)
dev.add_command(release)


@dev.command()
@state_dir_option
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this cluster instead of starting a control plane.",
)
@api_server_option(ApiServerChoice.KUBERNETES)
@click.option(
    "--pool",
    "pools",
    type=pool_node,
    metavar="NAME=SLOTS",
    multiple=True,
    help="Ray node of the pool NAME with SLOTS accelerators; repeatable. Default: large=8 and small=16.",
)
@click.option(
    "--python-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Directory from which models are imported; repeatable.",
)
@click.option(
    "--operator/--no-operator", "with_operator", default=False, help="Also install the CRDs and start the operator."
)
@output_option
@dev_errors_as_failure
def up(
    state_dir: Path,
    kubeconfig: Path | None,
    api_server: ApiServerChoice,
    pools: tuple[RayClassNode, ...],
    python_path: tuple[Path, ...],
    with_operator: bool,
    output: OutputFormat,
) -> None:
    """Start the control plane and Ray; components that run already stay as they are.

    The first time, Kubernetes is downloaded, or built from Go modules (5 to 10 minutes). Ctrl-C stops what this
    command has started.
    """
    ray = replace(DEFAULT_RAY, nodes=pools or DEFAULT_RAY.nodes)
    if python_path:
        ray = replace(ray, environment={"PYTHONPATH": pathsep.join(str(path.absolute()) for path in python_path)})
    with stopped_if_interrupted() as undo:
        environment = dev_up(DevConfig(state_dir, api_server, kubeconfig, ray=ray), report, undo=undo)
        if with_operator:
            start_operator(environment, report, undo=undo)
    print_status(state_dir, output, start=_command("up", state_dir))
    report("\nTo try next:")
    for command in next_commands(environment, state_dir, with_operator=with_operator):
        report(f"  {command}")
    report(f"To stop everything: {_command('down', state_dir)}")


@dev.command()
@state_dir_option
@output_option
@dev_errors_as_failure
def status(state_dir: Path, output: OutputFormat) -> None:
    """Print the state of all components; exit code 1 if one is missing."""
    print_status(state_dir, output, start=_command("up", state_dir))


@dev.command()
@state_dir_option
@click.option("--delete-data", is_flag=True, help="Also delete all objects of the API server.")
@dev_errors_as_failure
def down(state_dir: Path, delete_data: bool) -> None:
    """Stop everything that `up` and the demonstration started."""
    stop_operator(state_dir.absolute())
    dev_down(state_dir, report, delete_data=delete_data)


def _command(name: str, state_dir: Path, *options: str) -> str:
    """A `partita dev` command for the same state directory, for a shell."""
    place = [] if state_dir == DEFAULT_STATE_DIR else ["--state-dir", str(state_dir)]
    return shlex.join(["partita", "dev", name, *options, *place])


def next_commands(
    environment: DevEnvironment, state_dir: Path, *, with_operator: bool, example: Path = EXAMPLE
) -> list[str]:
    """Commands for a shell that work now: one that needs an example, its pools or kubectl only if they are here."""
    export = shlex.join(["export", f"KUBECONFIG={environment.kubeconfig}"])
    if not with_operator:
        return [_command("up", state_dir, "--operator"), export]
    pools = {node.name for node in environment.ray.config.nodes}
    has_example = example.is_dir() and pools >= {node.name for node in DEFAULT_RAY.nodes}
    apply = [shlex.join(["kubectl", "apply", "-f", str(example)])] if has_example and which("kubectl") else []
    return [export, *apply, "partita top --once"]


def print_status(state_dir: Path, output: OutputFormat, *, start: str) -> None:
    """Print the state of an environment; exit code 1 if a component is missing. `start` is the command to start it."""
    found = dev_status(state_dir)
    environment = found.environment
    if environment is None:
        raise DevError(f"nothing was started in {state_dir}; start with: {start}")
    with_operator = operator_running(environment.state_dir)
    facts: dict[str, str | bool] = {
        "kubeconfig": str(environment.kubeconfig),
        "ray_dashboard": environment.ray.dashboard_url,
        "serve_url": environment.ray.serve_url,
        "operator_running": with_operator,
    }
    components = [{"name": c.name, "healthy": c.healthy, "detail": c.detail} for c in found.components]

    def table(console: Console) -> None:
        rows = Table("component", "state")
        for component in found.components:
            rows.add_row(component.name, component.detail)
        rows.add_row("operator", "ok" if with_operator else "not started")
        console.print(rows)
        for name, value in facts.items():
            console.print(f"{name}: {value}", soft_wrap=True, highlight=False)

    emit({**facts, "components": components}, output, table)
    if not found.healthy:
        raise SystemExit(ExitCode.FAILED)
