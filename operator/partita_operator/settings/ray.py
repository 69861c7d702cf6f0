"""Settings of the Ray clusters of engine Ray: the default one, and those that sessions may name."""

from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from partita_api.meta import NAME_PATTERN
from partita_operator.settings.section import (
    URL_OR_EMPTY_PATTERN,
    URL_PATTERN,
    FromSecret,
    Namespace,
    Port,
    Section,
)

ALL_NAMESPACES: Final = "*"
_DIRECTORY_PATTERN: Final = r"^(/.*)?$"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class RayClusterSettings(Section):
    """A Ray cluster that sessions may name in spec.engine.cluster."""

    name: str = Field(pattern=NAME_PATTERN, max_length=63, description="Name of the cluster in spec.engine.cluster.")
    address: str = Field(pattern=URL_PATTERN, description="URL of Ray's dashboard.")
    serve_url: str = Field(
        default="",
        pattern=URL_OR_EMPTY_PATTERN,
        description="URL of Ray Serve's HTTP proxy. Empty: the dashboard's host, and the port of that cluster's Serve.",
    )
    namespaces: tuple[Namespace | Annotated[str, Field(pattern=r"^\*$")], ...] = Field(
        default=(),
        description="Namespaces whose sessions may use the cluster; they trust each other. * stands for all of them. "
        "Empty: none.",
    )
    transport_tls_directory: str = Field(
        default="", pattern=_DIRECTORY_PATTERN, description="As ray.transportTlsDirectory, for this cluster."
    )

    def admits(self, namespace: str) -> bool:
        """Whether sessions of the namespace may use the cluster."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


class RaySettings(Section):
    """The Ray clusters of engine Ray."""

    address: str = Field(
        default="http://ray-head-svc.ray.svc:8265",
        pattern=URL_OR_EMPTY_PATTERN,
        description="URL of Ray's dashboard, for sessions that name no cluster in spec.engine.cluster. Empty: no such "
        "cluster; all other sessions have engine KubeRay.",
    )
    serve_url: str = Field(
        default="http://ray-head-svc.ray.svc:8000",
        pattern=URL_PATTERN,
        description="URL under which clients and the operator reach Ray Serve's HTTP proxy.",
    )
    serve_http_port: Port = Field(
        default=8000, description="Port of Serve's HTTP proxy on a Ray cluster where Serve does not run yet."
    )
    clusters: tuple[RayClusterSettings, ...] = Field(
        default=(), description="Other Ray clusters, and the namespaces whose sessions may name them."
    )
    runtime_env: dict[str, Any] = Field(
        default={},
        description="Ray runtime environment of frontends, replicas and Ray profiling runs. It must provide Partita "
        "and the models if the image of the Ray nodes does not.",
    )
    transport_tls_directory: str = Field(
        default="",
        pattern=_DIRECTORY_PATTERN,
        description="Directory with ca.crt, tls.crt and tls.key on the nodes of the cluster at ray.address. The "
        "certificate is for servers and clients, with the DNS name partita-ray. Frontends, replicas and coordinators "
        "then connect to each other by TLS 1.3 only, and both sides show it. Empty: no TLS.",
    )
    token: Annotated[SecretStr | None, FromSecret("ray.tokenSecret")] = Field(
        default=None,
        description="Bearer token of the dashboard at ray.address, if it requires one. No other address receives it.",
    )
    tokens: Annotated[dict[str, SecretStr], FromSecret("ray.tokensSecret")] = Field(
        default={}, description="Bearer tokens of the dashboards of ray.clusters, by name of the cluster."
    )

    @model_validator(mode="after")
    def _each_cluster_once(self) -> Self:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) < len(names):
            raise ValueError("each name of ray.clusters may appear only once")
        addresses = [_normal_url(url) for url in (self.address, *(c.address for c in self.clusters)) if url]
        if len(set(addresses)) < len(addresses):
            raise ValueError("ray.address and the addresses of ray.clusters must be different clusters")
        if unknown := sorted(self.tokens.keys() - set(names)):
            raise ValueError(f"ray.tokensSecret has a token for {', '.join(unknown)}, which ray.clusters does not have")
        return self

    def cluster_for(self, name: str, namespace: str) -> RayClusterSettings | None:
        """The cluster of this name, if sessions of the namespace may use it."""
        return next((c for c in self.clusters if c.name == name and c.admits(namespace)), None)


def _normal_url(url: str) -> str:
    """One spelling for all spellings of a URL that differ in case, default port and final slashes."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').rstrip('.')}:{port}{parts.path.rstrip('/')}"
