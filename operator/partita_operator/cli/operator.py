"""`partita operator run`: the operator process."""

import asyncio
import json
import logging
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from partita_api.manifests import explain
from partita_operator.cli.versions import installed_versions
from partita_operator.engines.kuberay.settings import KubeRaySettings
from partita_operator.engines.selection import open_engines
from partita_operator.handlers.leadership import LeadershipLostError
from partita_operator.handlers.operator import run_operator
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.partitioning.settings import MigSettings
from partita_operator.ports import OperatorSettings, ProfileRunner
from partita_operator.profiling.kubernetes_job import KubernetesJobRunner
from partita_operator.profiling.ray_job import RayJobRunner
from partita_operator.solver_process import ProcessSolver
from partita_planner.planning import plan
from partita_runtime.logs import LogFormat, log_to_stderr
from partita_runtime.models.policy import ModelPolicy
from partita_runtime.serving.transport.kind import Transport

DEFAULTS = OperatorSettings()


def json_object(text: str) -> dict[str, Any]:
    """A JSON object given on the command line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{text!r} is not a JSON object, such as {{}}")
    return value


def model_policy(text: str) -> ModelPolicy:
    """What sessions may name, given on the command line as JSON."""
    try:
        return ModelPolicy.model_validate_json(text)
    except ValidationError as error:
        raise click.BadParameter(explain(error)) from None


def mig_settings(text: str) -> MigSettings:
    """How GPUs are cut into slices, given on the command line as JSON."""
    try:
        return MigSettings.model_validate_json(text)
    except ValidationError as error:
        raise click.BadParameter(explain(error)) from None


def kuberay_settings(text: str) -> KubeRaySettings:
    """KubeRay's settings given on the command line as JSON."""
    try:
        return KubeRaySettings.model_validate_json(text)
    except ValidationError as error:
        raise click.BadParameter(explain(error)) from None


def lease_name(text: str) -> str:
    """namespace/name given on the command line, or nothing."""
    if text and not re.fullmatch(r"[^/\s]+/[^/\s]+", text):
        raise click.BadParameter(f"{text!r} is not of the form NAMESPACE/NAME, such as partita-system/partita")
    return text


@click.group()
def operator() -> None:
    """Run the operator."""


@operator.command(context_settings={"auto_envvar_prefix": "PARTITA", "show_default": True})
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Cluster to work on. Default: the pod's service account, else $KUBECONFIG or ~/.kube/config.",
)
@click.option(
    "--ray-address", default=DEFAULTS.ray_address, help="URL of the Ray dashboard; empty if there is no such cluster."
)
@click.option("--ray-token", help="Bearer token of that dashboard, if it asks for one.")
@click.option(
    "--ray-tokens",
    type=json_object,
    default="{}",
    help="JSON: tokens of the Ray dashboards that sessions name, by URL.",
)
@click.option("--serve-url", default=DEFAULTS.serve_url, help="URL under which clients reach Ray Serve's HTTP proxy.")
@click.option(
    "--serve-http-port",
    type=click.IntRange(1, 65535),
    default=DEFAULTS.serve_http_port,
    help="Port of that proxy where Serve does not run yet.",
)
@click.option(
    "--runtime-env", type=json_object, default="{}", help="JSON: Ray runtime environment with Partita and the models."
)
@click.option(
    "--transport",
    type=click.Choice([str(way) for way in Transport]),
    default=str(DEFAULTS.transport),
    callback=lambda _context, _option, way: Transport(way),
    help="How batches travel between pods: Streams on free ports, or ActorCalls, on Ray's own, where networks forbid "
    "those.",
)
@click.option(
    "--kuberay",
    type=kuberay_settings,
    help='JSON: serve sessions of engine.type KubeRay so, such as {"image": "..."}. Default: not at all.',
)
@click.option("--kuberay-token", help="Bearer token of the dashboards of KubeRay's clusters, if they ask for one.")
@click.option(
    "--mig",
    type=mig_settings,
    help='JSON: cut the GPUs of pools with spec.mig, such as {"configMap": "mig-parted", "namespace": "gpu-operator"}. '
    "Default: not at all.",
)
@click.option(
    "--model-policy",
    type=model_policy,
    default="{}",
    help='JSON: which code and files sessions may name, such as {"modules": ["traffic"], "files": ["/models/"]}.',
)
@click.option(
    "--profiler-image",
    help="Image of the profiling Jobs. Default: KubeRay's image; without KubeRay, profiling runs as Ray jobs beside "
    "the replicas.",
)
@click.option("--profile-timeout-seconds", type=click.IntRange(1), default=DEFAULTS.profile_timeout_seconds)
@click.option("--profile-attempts", type=click.IntRange(1), default=DEFAULTS.profile_attempts)
@click.option("--profile-backoff-seconds", type=click.IntRange(0), default=DEFAULTS.profile_backoff_seconds)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(0.1),
    default=DEFAULTS.resync_seconds,
    help="How often a settled session is looked at again.",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Look after the sessions of this namespace; may be repeated. Default: of all.",
)
@click.option(
    "--lease",
    default=DEFAULTS.lease,
    callback=lambda _context, _option, text: lease_name(text),
    help="NAMESPACE/NAME of the Lease by which replicas of the operator agree on which one works. Default: there is "
    "only one.",
)
@click.option(
    "--lease-seconds",
    type=click.IntRange(3),
    default=DEFAULTS.lease_seconds,
    help="After how many seconds without a sign of life another replica takes over.",
)
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=DEFAULTS.metrics_port)
@click.option("--health-port", type=click.IntRange(1, 65535), default=DEFAULTS.health_port, help="Port of /healthz.")
@click.option(
    "--webhook-certificates",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with tls.crt and tls.key: serve the admission webhook with them. Default: there is none.",
)
@click.option("--webhook-port", type=click.IntRange(1, 65535), default=DEFAULTS.webhook_port)
@click.option(
    "--versions",
    type=json_object,
    default="{}",
    help="JSON: library versions in the keys of profiles. Default: torch's as installed here.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option(
    "--log-format",
    type=click.Choice([str(form) for form in LogFormat]),
    default=str(LogFormat.TEXT),
    help="text, or json: one object a line.",
)
def run(kubeconfig: Path | None, log_level: str, log_format: str, versions: dict[str, str], **settings: Any) -> None:
    """Reconcile GPUPools and InferenceSessions until told to stop (SIGTERM or Ctrl-C).

    Every flag is also an environment variable: --ray-address is PARTITA_RAY_ADDRESS.
    """
    log_to_stderr(logging.getLogger(), LogFormat(log_format), log_level)
    for noisy in ("httpx", "httpcore", "kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(_run(OperatorSettings(versions=versions or installed_versions(), **settings), kubeconfig))


async def _run(settings: OperatorSettings, kubeconfig: Path | None) -> None:
    _check_certificates(settings.webhook_certificates)
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
                solver=ProcessSolver(plan),
                stop=stop,
            )
    except (NoClusterError, LeadershipLostError) as error:
        raise click.ClickException(str(error)) from error


def _check_certificates(directory: Path | None) -> None:
    missing = [name for name in ("tls.crt", "tls.key") if directory is not None and not (directory / name).is_file()]
    if missing:
        raise click.ClickException(f"{directory} has no {' and no '.join(missing)} for the admission webhook.")


async def _runner(settings: OperatorSettings, kubeconfig: Path | None, resources: AsyncExitStack) -> ProfileRunner:
    """Kubernetes Jobs where there is an image for them, else Ray jobs."""
    image = settings.profiler_image or (settings.kuberay.image if settings.kuberay else None)
    if image is not None:
        kubernetes = await resources.enter_async_context(KubernetesClient(await load_config(kubeconfig)))
        return KubernetesJobRunner(kubernetes, image, settings.profile_timeout_seconds, settings.model_policy)
    if not settings.ray_address:
        raise click.ClickException(
            "There is nothing to serve or to profile on: give --ray-address of a Ray cluster, or --kuberay."
        )
    runner = RayJobRunner(settings)
    resources.push_async_callback(runner.close)
    return runner
