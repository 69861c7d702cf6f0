"""`partita operator run`: the operator process; `partita operator settings`: what it would run with."""

import asyncio
import json
import logging
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from partita_operator.cli.errors import BadInput
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_operator.cli.settings_options import PRECEDENCE, read_settings, settings_options
from partita_operator.cli.versions import installed_versions
from partita_operator.engines.selection import open_engines
from partita_operator.handlers.leadership import LeadershipLostError
from partita_operator.handlers.operator import run_operator
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.ports import ProfileRunner
from partita_operator.profiling.kubernetes_job import KubernetesJobRunner
from partita_operator.profiling.ray_job import RayJobRunner
from partita_operator.settings.json_schema import chart_values_schema, values_schema
from partita_operator.settings.loading import settings_yaml
from partita_operator.settings.model import AdmissionSettings, OperatorSettings
from partita_operator.solver.process import ProcessSolver
from partita_planner.planning import plan
from partita_runtime.logs import log_to_stderr


@click.group()
def operator() -> None:
    """Run the operator, or show its settings."""


@operator.command(epilog=PRECEDENCE)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Cluster to work on. Default: the pod's service account, else $KUBECONFIG or ~/.kube/config.",
)
@settings_options
def run(kubeconfig: Path | None, config_file: Path | None, **flags: Any) -> None:
    """Reconcile GPUPools and InferenceSessions until the process is stopped (SIGTERM or Ctrl-C)."""
    settings = read_settings(config_file, flags)
    log_to_stderr(logging.getLogger(), settings.logging.format, settings.logging.level)
    for noisy in ("httpx", "httpcore", "kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if not settings.profiling.versions:
        profiling = settings.profiling.model_copy(update={"versions": installed_versions()})
        settings = settings.model_copy(update={"profiling": profiling})
    asyncio.run(_run(settings, kubeconfig))


@operator.command("settings", epilog=PRECEDENCE)
@click.option("--schema", is_flag=True, help="Print the JSON schema of the settings in the chart's values instead.")
@click.option(
    "--merge-into",
    "chart_schema",
    type=click.File(encoding="utf-8"),
    help="With --schema: JSON schema of the chart's other values; print it with the settings added.",
)
@settings_options
@output_option
def show_settings(
    schema: bool, chart_schema: TextIO | None, config_file: Path | None, output: OutputFormat, **flags: Any
) -> None:
    """Print the settings that `partita operator run` has with the same flags, as a config file, without secrets."""
    if chart_schema is not None and not schema:
        raise click.UsageError("--merge-into needs --schema.")
    if schema:
        found = chart_values_schema(_chart_schema(chart_schema)) if chart_schema is not None else values_schema()
        emit(found, output, lambda _console: click.echo(json.dumps(found, indent=2)))
    else:
        text = settings_yaml(read_settings(config_file, flags))
        emit(yaml.safe_load(text), output, lambda _console: click.echo(text, nl=False))


def _chart_schema(file: TextIO) -> dict[str, Any]:
    """The JSON schema in the file. Raises BadInput."""
    try:
        found = json.load(file)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file.name} is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("properties"), dict):
        raise BadInput(f"{file.name} is not a JSON schema of an object: it has no properties")
    return found


async def _run(settings: OperatorSettings, kubeconfig: Path | None) -> None:
    _check_certificates(settings.admission)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with AsyncExitStack() as resources:
            await run_operator(
                settings,
                kubeconfig,
                engines=await resources.enter_async_context(open_engines(settings, kubeconfig)),
                runner=await _runner(settings, kubeconfig, resources),
                solver=ProcessSolver(plan, settings.planning),
                stop=stop,
            )
    except NoClusterError as error:
        raise BadInput(str(error)) from error
    except LeadershipLostError as error:
        raise click.ClickException(str(error)) from error


def _check_certificates(admission: AdmissionSettings) -> None:
    directory = admission.certificate_directory
    missing = [name for name in ("tls.crt", "tls.key") if admission.enabled and not (directory / name).is_file()]
    if missing:
        raise click.ClickException(
            f"{directory} has no {' and no '.join(missing)} for the admission webhook. Add what is missing, or set "
            "admission.enabled to false."
        )


async def _runner(settings: OperatorSettings, kubeconfig: Path | None, resources: AsyncExitStack) -> ProfileRunner:
    """Kubernetes Jobs where there is an image for them, else Ray jobs."""
    image = settings.profiling.image or settings.kuberay.image
    if image:
        kubernetes = await resources.enter_async_context(KubernetesClient(await load_config(kubeconfig)))
        return KubernetesJobRunner(kubernetes, image, settings.profiling, settings.models.policy)
    if not settings.ray.address:
        raise click.ClickException(
            "There is no cluster to serve or to profile on. Set ray.address or kuberay.image in the chart's values."
        )
    runner = RayJobRunner(settings)
    resources.push_async_callback(runner.close)
    return runner
