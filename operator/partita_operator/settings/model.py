"""The settings of the operator.

This model is the only definition. The chart's config file has the same keys in camelCase, and `values.schema.json`
is generated from it. `loading.py` fills it from flags, environment variables and the file.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from partita_api.fields.url import BEGINNING_PATTERN
from partita_api.inferencesession import EngineType
from partita_operator.settings.clients import ClientSettings
from partita_operator.settings.exposure import ExposureSettings
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.mig import MigSettings
from partita_operator.settings.planning import PlanningSettings
from partita_operator.settings.pod_templates import PodTemplateSettings
from partita_operator.settings.ray import RaySettings
from partita_operator.settings.request_log import RequestLogSettings
from partita_operator.settings.section import (
    GIBIBYTES_PATTERN,
    URL_OR_EMPTY_PATTERN,
    Namespace,
    Port,
    Section,
    SetByChart,
)
from partita_runtime.logs import LogFormat
from partita_runtime.models.policy import FILES_PATTERN, MODULE_PATTERN, REPOSITORIES_PATTERN, ModelPolicy
from partita_runtime.serving.transport.kind import TransportKind


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("each name may appear only once")
    return names


class LogLevel(StrEnum):
    """The least severe lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LeaderElectionSettings(Section):
    """How replicas of the operator agree on the one that works, by a Lease."""

    namespace: Annotated[str, SetByChart()] = Field(default="", description="Namespace of the Lease.")
    name: Annotated[str, SetByChart()] = Field(
        default="", description="Name of the Lease. Empty: no leader election (single replica)."
    )
    lease_duration_seconds: int = Field(
        default=15, ge=3, le=3600, description="Seconds without renewal until another replica takes the Lease."
    )

    @model_validator(mode="after")
    def _named_whole(self) -> Self:
        if bool(self.namespace) != bool(self.name):
            raise ValueError("a Lease needs both a namespace and a name")
        return self


class ModelsSettings(Section):
    """The code and files that sessions may name."""

    allowed_modules: tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...] = Field(
        default=(),
        description="Python packages and modules that entrypoints of models and functions may come from. "
        "Empty: everything that can be imported.",
    )
    allowed_files: tuple[Annotated[str, Field(pattern=FILES_PATTERN)], ...] = Field(
        default=(),
        description="Directories (/models/) and URIs (s3://models/) that model files may come from, and single files "
        "with the digest that they must have (/models/a.pt2@sha256:...). Empty: any local file.",
    )
    require_digest: bool = Field(
        default=False,
        description="Each file needs a SHA-256 digest, and each repository a commit: in allowedFiles and "
        "allowedRepositories, or in the session.",
    )
    allowed_repositories: tuple[Annotated[str, Field(pattern=REPOSITORIES_PATTERN)], ...] = Field(
        default=(),
        description="Owners (google/) and repositories (google/vit) of Hugging Face, and single repositories with the "
        "commit that they must have (google/vit@...). Empty: every repository, or none if allowedModules, "
        "allowedFiles or requireDigest are set.",
    )
    allow_remote_code: bool = Field(
        default=False,
        description="The Python code in a repository may run, if allowedRepositories has the repository with a commit.",
    )
    hub_endpoint: str = Field(
        default="",
        pattern=URL_OR_EMPTY_PATTERN,
        description="URL of a mirror of Hugging Face's hub. Empty: HF_ENDPOINT of the pods, or https://huggingface.co.",
    )
    hub_directory: str = Field(
        default="",
        pattern=r"^(/.+)?$",
        description="Directory in the pods with repositories of Hugging Face: a cache of huggingface_hub, or "
        "checkpoints in OWNER/NAME. Downloads go there. Empty: HF_HUB_CACHE or HF_HOME of the pods, or a directory in "
        "/tmp.",
    )
    hub_offline: bool = Field(
        default=False, description="Download nothing from the hub: use only what hubDirectory has."
    )
    allowed_endpoints: tuple[Annotated[str, Field(pattern=BEGINNING_PATTERN)], ...] = Field(
        default=(),
        description="Beginnings of URLs, up to a slash (http://triton.models.svc:8000/), of servers that frontends may "
        "call for sessions, with what the frontends' network and tokens allow. Empty: none.",
    )

    @property
    def policy(self) -> ModelPolicy:
        """The same as the runtime checks it."""
        return ModelPolicy(
            modules=self.allowed_modules or None,
            files=self.allowed_files or None,
            require_digest=self.require_digest,
            endpoints=self.allowed_endpoints,
            repositories=self.allowed_repositories or None,
            remote_code=self.allow_remote_code,
            hub_endpoint=self.hub_endpoint,
            hub_directory=self.hub_directory,
            hub_offline=self.hub_offline,
        )


class ProfilingSettings(Section):
    """How models are profiled."""

    image: str = Field(
        default="",
        description="Image of profiling Jobs. Empty: kuberay.image; if that is empty too, profiling runs as Ray jobs "
        "on the cluster of ray.address.",
    )
    timeout_seconds: int = Field(default=1800, ge=1, description="Seconds after which a profiling run is stopped.")
    attempts: int = Field(default=3, ge=1, description="Profiling runs before the operator gives up.")
    backoff_seconds: int = Field(
        default=20, ge=0, description="Seconds before the second profiling run. Each further run waits twice as long."
    )
    memory_limit: str = Field(
        default="32Gi",
        pattern=GIBIBYTES_PATTERN,
        description="Most memory of a profiling Job's pod. A pod template may say another limit.",
    )
    storage_limit: str = Field(
        default="32Gi",
        pattern=GIBIBYTES_PATTERN,
        description="Most local disk of a profiling Job's pod: its log and /tmp, where it loads model files to. A pod "
        "template may say another limit.",
    )
    versions: dict[str, str] = Field(
        default={},
        description='Library versions in every profile\'s key, such as {torch: "2.13.0"}. After a change, models are '
        "profiled again. Empty: torch's version in the operator's environment.",
    )


class TracingSettings(Section):
    """OpenTelemetry traces of sampled requests, written by the frontends."""

    endpoint: str = Field(
        default="",
        pattern=URL_OR_EMPTY_PATTERN,
        description="URL that accepts traces by OTLP over HTTP, such as http://otel-collector.observability:4318. "
        "Empty: no traces.",
    )
    ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of requests that are traced, in addition to those that their clients trace.",
    )


class AdmissionSettings(Section):
    """The validating admission webhook."""

    enabled: bool = Field(
        default=False, description="Serve the admission webhook. The API server must reach the operator's pod."
    )
    port: Port = Field(default=9443, description="Port of the admission webhook.")
    client_ca: str = Field(
        default="",
        pattern=r"^(-----BEGIN CERTIFICATE-----\n[^\x00]*)?$",
        description="Certificates (PEM) of the authority of the API server's client certificate. The webhook answers "
        "only clients that have one. Empty: all clients. API servers have none without an AdmissionConfiguration.",
    )
    certificate_directory: Annotated[Path, SetByChart()] = Field(
        default=Path("/certificates"), description="Directory with tls.crt and tls.key of the admission webhook."
    )


class MetricsSettings(Section):
    """Metrics for Prometheus."""

    port: Port = Field(default=9090, description="Port of /metrics.")


class HealthSettings(Section):
    """The liveness and readiness endpoint."""

    port: Port = Field(default=8080, description="Port of /healthz.")


class LoggingSettings(Section):
    """The operator's log, on stderr."""

    level: LogLevel = Field(default=LogLevel.INFO, description="The least severe log lines that are written.")
    format: LogFormat = Field(
        default=LogFormat.TEXT,
        description="Log format: text, or json: one object per line, with the session or pool that the line is about.",
    )


class OperatorSettings(Section):
    """All settings of the operator."""

    namespaces: Annotated[tuple[Namespace, ...], AfterValidator(_each_once)] = Field(
        default=(),
        description="Namespaces whose sessions the operator serves. Empty: all, as with the chart's scope Cluster.",
        json_schema_extra={"uniqueItems": True},
    )
    default_engine: EngineType = Field(
        default=EngineType.RAY,
        description="Engine of sessions without spec.engine.type: Ray, or KubeRay, which needs kuberay.image.",
    )
    resync_seconds: float = Field(
        default=5, ge=0.1, description="Seconds after which a settled session is reconciled again."
    )
    transport: TransportKind = Field(
        default=TransportKind.STREAMS,
        description="How batches travel between the pods of a session. Streams: connections on free ports. "
        "ActorCalls: the ports that Ray uses, for networks that forbid others.",
    )
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    ray: RaySettings = RaySettings()
    kuberay: KubeRaySettings = KubeRaySettings()
    exposure: ExposureSettings = ExposureSettings()
    clients: ClientSettings = ClientSettings()
    mig: MigSettings = MigSettings()
    models: ModelsSettings = ModelsSettings()
    request_log: RequestLogSettings = RequestLogSettings()
    pod_templates: PodTemplateSettings = PodTemplateSettings()
    profiling: ProfilingSettings = ProfilingSettings()
    planning: PlanningSettings = PlanningSettings()
    tracing: TracingSettings = TracingSettings()
    admission: AdmissionSettings = AdmissionSettings()
    metrics: MetricsSettings = MetricsSettings()
    health: HealthSettings = HealthSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _has_default_engine(self) -> Self:
        if self.default_engine is EngineType.KUBERAY and not self.kuberay.enabled:
            raise ValueError("defaultEngine KubeRay needs kuberay.image")
        return self

    @model_validator(mode="after")
    def _encrypts_what_it_carries(self) -> Self:
        directories = (self.ray.transport_tls_directory, *(c.transport_tls_directory for c in self.ray.clusters))
        if self.transport is not TransportKind.STREAMS and (self.kuberay.transport_tls or any(directories)):
            raise ValueError(
                "kuberay.transportTls and ray.transportTlsDirectory need transport Streams: calls of Ray's actors are "
                "not encrypted"
            )
        return self

    @property
    def own_namespace(self) -> str:
        """Where the operator keeps objects of its own."""
        return self.leader_election.namespace or "default"

    @property
    def runtime_env(self) -> dict[str, Any]:
        """Ray's runtime environment of all processes of sessions, with the variables of tracing."""
        if not self.tracing.endpoint:
            return self.ray.runtime_env
        variables: Mapping[str, str] = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.tracing.endpoint,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": f"{self.tracing.ratio:g}",
        }
        return {**self.ray.runtime_env, "env_vars": {**variables, **self.ray.runtime_env.get("env_vars", {})}}
