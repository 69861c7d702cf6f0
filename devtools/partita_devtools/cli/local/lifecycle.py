"""`partita local up`, `down` and `status`."""

from pathlib import Path

import click

from partita_devtools.cli.dev import print_status
from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.interruption import stopped_if_interrupted
from partita_devtools.cli.local.changes import apply_objects
from partita_devtools.cli.local.options import (
    manifests_option,
    namespace_option,
    read_pools_and_sessions,
    state_dir_option,
    timeout_option,
    wait_option,
)
from partita_devtools.environment import dev_down
from partita_devtools.local.environment import local_command, local_up, up_command
from partita_devtools.operator_process import launch_operator, stop_operator
from partita_operator.cli.output import OutputFormat, emit, output_option, report


@click.command()
@manifests_option
@click.option(
    "--python-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder from which models are imported; repeatable. Default: the current one.",
)
@namespace_option
@state_dir_option
@timeout_option
@wait_option
@output_option
@dev_errors_as_failure
def up(
    paths: tuple[Path, ...],
    python_path: tuple[Path, ...],
    namespace: str,
    state_dir: Path,
    timeout_s: float,
    wait: bool,
    output: OutputFormat,
) -> None:
    """Start local mode, apply manifests, and wait until their sessions serve.

    What runs already stays as it is. Objects of an earlier run are served again. Ctrl-C stops what this command has
    started; the objects stay.
    """
    pools, sessions = read_pools_and_sessions(paths, namespace)
    with stopped_if_interrupted() as undo:
        environment = local_up(state_dir, pools, python_path or (Path(),), report, undo)
        launch_operator(environment, report, again=up_command(state_dir), undo=undo)
        applied = apply_objects(state_dir, pools, sessions, timeout_s if wait else None)
    emit({"kubeconfig": str(environment.kubeconfig), "objects": applied}, output, lambda _console: None)
    report(f"to see everything: {local_command('get', state_dir)}")
    report(f"for kubectl and the other commands: export KUBECONFIG={environment.kubeconfig}")
    report(f"to stop: {local_command('down', state_dir)}")


@click.command()
@state_dir_option
@click.option("--delete-data", is_flag=True, help="Also delete all objects and logs.")
@dev_errors_as_failure
def down(state_dir: Path, delete_data: bool) -> None:
    """Stop local mode. The objects stay for the next `partita local up`."""
    stop_operator(state_dir.absolute())
    dev_down(state_dir, report, delete_data=delete_data)


@click.command()
@state_dir_option
@output_option
@dev_errors_as_failure
def status(state_dir: Path, output: OutputFormat) -> None:
    """Print the state of all components; exit code 1 if one is missing."""
    print_status(state_dir, output, start=local_command("up", state_dir))
