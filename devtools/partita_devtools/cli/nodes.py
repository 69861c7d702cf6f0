"""`partita dev nodes`: starts and stops a Kubernetes cluster whose nodes run pods, on this machine."""

import shlex
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.control_plane.binaries import find_binaries
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, NODE_PROGRAMS
from partita_devtools.errors import DevError
from partita_devtools.nodes.cluster import NodeCluster, load_nodes, start_nodes, stop_nodes
from partita_devtools.nodes.image import build_image
from partita_devtools.nodes.node import NodeSpec
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.output import OutputFormat, emit, output_option, report

DEFAULT_STATE_DIR = Path(".partita/cluster")
DEFAULT_NODES = (
    NodeSpec("control"),
    NodeSpec("l4", "NVIDIA-L4", gpus=4, cpus=2.0),
    NodeSpec("t4", "Tesla-T4", gpus=4, cpus=1.0),
    NodeSpec("p4", "Tesla-P4", gpus=4, cpus=0.5),
)

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="Folder for keys, data, kubeconfig, logs and pods' file systems.",
)


def node_spec(text: str) -> NodeSpec:
    """The node of NAME or NAME=PRODUCT:GPUS[:CPUS], such as l4=NVIDIA-L4:4:1.5."""
    name, _, claim = text.partition("=")
    spec = NodeSpec(name)
    try:
        if claim:
            product, gpus, cpus = claim.split(":") if claim.count(":") > 1 else (*claim.split(":"), "")
            spec = replace(spec, product=product, gpus=int(gpus), cpus=float(cpus) if cpus else None)
    except ValueError:
        message = f"{text!r} is neither NAME nor NAME=PRODUCT:GPUS[:CPUS], such as l4=NVIDIA-L4:4:1.5"
        raise click.BadParameter(message) from None
    return spec


def build_argument(text: str) -> tuple[str, str]:
    """The name and the value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as EXTRAS=operator")
    return name, value


@click.group()
def nodes() -> None:
    """Run a Kubernetes cluster with real nodes on this machine (root, Debian 12)."""


@nodes.command()
@state_dir_option
@click.option(
    "--node",
    "specs",
    type=node_spec,
    metavar="NAME[=PRODUCT:GPUS[:CPUS]]",
    multiple=True,
    help="Node with GPUS of a product, whose pods share CPUS; repeatable. "
    "Default: control, l4=NVIDIA-L4:4:2, t4=Tesla-T4:4:1 and p4=Tesla-P4:4:0.5.",
)
@output_option
@dev_errors_as_failure
def up(state_dir: Path, specs: tuple[NodeSpec, ...], output: OutputFormat) -> None:
    """Start the control plane and the nodes; a cluster that runs already stays as it is.

    The first time, the programs are downloaded, or built from Go modules (10 to 15 minutes).
    """
    binaries = find_binaries(report=report, programs=(*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS))
    start_nodes(state_dir, specs or DEFAULT_NODES, binaries=binaries, report=report)
    _print_status(state_dir, output)


@nodes.command()
@state_dir_option
@output_option
@dev_errors_as_failure
def status(state_dir: Path, output: OutputFormat) -> None:
    """Print the state of all components; exit code 1 if one is missing."""
    _print_status(state_dir, output)


@nodes.command()
@click.argument("tag")
@state_dir_option
@click.option(
    "--context",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder with the Dockerfile and the files that it copies. Default: the current one.",
)
@click.option(
    "--file",
    "dockerfile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Dockerfile to use instead of the context's.",
)
@click.option(
    "--build-arg",
    "arguments",
    type=build_argument,
    metavar="NAME=VALUE",
    multiple=True,
    help="Build argument; repeatable. Default of BASE: a Debian 12 with Python, built here.",
)
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".partita/image"),
    show_default=True,
    help="Folder for the layers of earlier builds.",
)
@dev_errors_as_failure
def image(
    tag: str,
    state_dir: Path,
    context: Path,
    dockerfile: Path | None,
    arguments: tuple[tuple[str, str], ...],
    cache_dir: Path,
) -> None:
    """Build the image TAG and import it into every node, without a registry."""
    archive = cache_dir.absolute() / "image.tar"
    try:
        cluster = _cluster(state_dir)
        build_image(
            context,
            tag,
            archive,
            work_dir=cache_dir.absolute(),
            arguments=dict(arguments),
            report=report,
            dockerfile=dockerfile,
        )
        cluster.import_image(archive, report)
    finally:
        archive.unlink(missing_ok=True)


@nodes.command()
@state_dir_option
@dev_errors_as_failure
def down(state_dir: Path) -> None:
    """Stop the nodes and all their pods, and delete everything that `up` created."""
    stop_nodes(state_dir, report)


def _cluster(state_dir: Path) -> NodeCluster:
    if (found := load_nodes(state_dir)) is None:
        place = [] if state_dir == DEFAULT_STATE_DIR else ["--state-dir", str(state_dir)]
        command = shlex.join(["partita", "dev", "nodes", "up", *place])
        raise DevError(f"no nodes were started in {state_dir}; start them with: {command}")
    return found


def _print_status(state_dir: Path, output: OutputFormat) -> None:
    cluster = _cluster(state_dir)
    components = cluster.health()
    kubeconfig = str(cluster.control_plane.kubeconfig)

    def table(console: Console) -> None:
        rows = Table("component", "state")
        for name, detail in components.items():
            rows.add_row(name, detail)
        console.print(rows)
        console.print(f"kubeconfig: {kubeconfig}", soft_wrap=True, highlight=False)

    listed = [{"name": name, "healthy": detail == "ok", "detail": detail} for name, detail in components.items()]
    emit({"kubeconfig": kubeconfig, "components": listed}, output, table)
    if set(components.values()) != {"ok"}:
        raise SystemExit(ExitCode.FAILED)
