"""`partita doctor`: what is installed, missing or wrong on this machine and in a cluster."""

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from partita_operator.cli.cluster.options import ClusterPlace, cluster_options
from partita_operator.cli.doctor.findings import Area, CheckFinding, Level, exit_code, findings_data
from partita_operator.cli.doctor.machine_checks import machine_findings
from partita_operator.cli.doctor.machine_probe import installed_version, machine_facts
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_runtime.installation import PACKAGE, devtools_command, extra_command, package_command

DEVELOPMENT_CHECKS: Final = "partita_devtools.checks"
"""The module of the development tools with `development_findings`. It is a separate distribution."""
TITLES: Final = {
    Area.MACHINE: "This machine",
    Area.DEVELOPMENT: "Development tools",
    Area.CLUSTER: "Cluster",
}
STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red", Level.SKIPPED: "dim"}


@click.command()
@cluster_options
@output_option
def doctor(place: ClusterPlace, output: OutputFormat) -> None:
    """Check what is installed, missing or wrong on this machine and in a cluster, and what to do about it.

    The cluster is the current one of the kubeconfig, if there is one. Nothing is changed. Exit code 1 if a check found
    an error; warnings do not count.
    """
    findings = [*_machine(), *_development(), *_cluster(place)]
    emit(findings_data(findings), output, lambda console: print_findings(findings, console))
    raise SystemExit(exit_code(findings))


def print_findings(findings: Iterable[CheckFinding], console: Console) -> None:
    """Print the findings by area; commands stay on one line, to be copied."""
    found = list(findings)
    for area, of_area in groupby(found, key=lambda finding: finding.area):
        console.print(Text(TITLES[area], style="bold"))
        for finding in of_area:
            level = Text(f"  {finding.level!s:8}", style=STYLES[finding.level])
            console.print(level, Text(f"{finding.check}: {finding.message}"), soft_wrap=True, sep="")
            if finding.action:
                console.print(Text(f"          {finding.action}"), soft_wrap=True)
            if finding.command:
                console.print(Text(f"            {finding.command}", style="bold"), soft_wrap=True)
    errors, warnings = (sum(f.level is level for f in found) for level in (Level.ERROR, Level.WARNING))
    console.print(f"errors: {errors}, warnings: {warnings}", highlight=False)


def _machine() -> Iterator[CheckFinding]:
    return machine_findings(machine_facts(Path.cwd()), extra_command, package_command())


def _development() -> Iterable[CheckFinding]:
    if importlib.util.find_spec(DEVELOPMENT_CHECKS.partition(".")[0]) is None:
        yield CheckFinding(
            Area.DEVELOPMENT,
            "partita-devtools",
            Level.SKIPPED,
            "The development tools are not installed.",
            "Install them if you want to run clusters on this machine.",
            devtools_command(),
        )
        return
    try:
        development_findings = importlib.import_module(DEVELOPMENT_CHECKS).development_findings
    except ImportError as error:
        yield CheckFinding(
            Area.DEVELOPMENT,
            "partita-devtools",
            Level.ERROR,
            f"The development tools cannot be loaded: {error}.",
            "Install them again.",
            devtools_command(),
        )
        return
    yield from development_findings()


def _cluster(place: ClusterPlace) -> Iterable[CheckFinding]:
    if importlib.util.find_spec("kubernetes") is None:
        yield CheckFinding(
            Area.CLUSTER,
            "API server",
            Level.SKIPPED,
            "The Kubernetes client is not installed.",
            "Install it if you want to use a cluster.",
            extra_command("operator"),
        )
        return
    # Imported only here: the checks of the machine do not need the Kubernetes client.
    from partita_operator.cli.doctor.cluster_checks import cluster_findings
    from partita_operator.cli.doctor.cluster_probe import cluster_facts

    yield from cluster_findings(cluster_facts(place), installed_version(PACKAGE) or "")
