"""The public address of a session: an Ingress, or routes of a Gateway, that lead to the session's Service."""

import re
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from partita_api.meta import Rule, SpecModel, StatusModel, Timestamp

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
HOST_PATTERN: Final = f"({_LABEL}[.])*[a-z]([-a-z0-9]*[a-z0-9])?"
"""A DNS name in lower case. Its last label begins with a letter, so no IP address is one."""

ObjectRef = Annotated[str, Field(min_length=1, max_length=253)]
"""The name of an object of the cluster."""


def _is_host(text: str) -> bool:
    return re.fullmatch(HOST_PATTERN, text) is not None


class IngressExposure(SpecModel):
    """An Ingress for the session. The platform limits its host, class and annotations."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "ingress.host must be a DNS name in lower case, without a port or a wildcard, such as serve.example.com",
            lambda ingress: _is_host(ingress.host),
            f"self.host.matches('^{HOST_PATTERN}$')",
        ),
    )

    host: str = Field(min_length=1, max_length=253, description="Host of the public URL, such as serve.example.com.")
    class_name: ObjectRef | None = Field(
        default=None,
        description="The IngressClass. Default: the first one of the operator's setting "
        "exposure.allowedIngressClasses.",
    )
    tls_secret_name: ObjectRef | None = Field(
        default=None,
        description="Secret of the session's namespace with the certificate (tls.crt, tls.key). Default: plain HTTP.",
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default={},
        max_length=16,
        description="Annotations of the Ingress, such as cert-manager.io/cluster-issuer: letsencrypt.",
    )


class GatewayExposure(SpecModel):
    """Routes of a Gateway for the session: an HTTPRoute, and a GRPCRoute for a second hostname."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "gateway.hostname must be a DNS name in lower case, without a port or a wildcard, such as "
            "serve.example.com",
            lambda gateway: _is_host(gateway.hostname),
            f"self.hostname.matches('^{HOST_PATTERN}$')",
        ),
        Rule(
            "gateway.grpcHostname must be a DNS name in lower case, without a port or a wildcard, such as "
            "grpc.example.com",
            lambda gateway: gateway.grpc_hostname is None or _is_host(gateway.grpc_hostname),
            f"!has(self.grpcHostname) || self.grpcHostname.matches('^{HOST_PATTERN}$')",
        ),
        Rule(
            "gateway.hostname and gateway.grpcHostname must differ, because a listener has routes of one kind for a "
            "hostname",
            lambda gateway: gateway.hostname != gateway.grpc_hostname,
            "!has(self.grpcHostname) || self.hostname != self.grpcHostname",
        ),
    )

    name: ObjectRef = Field(description="The Gateway.")
    namespace: ObjectRef | None = Field(
        default=None, description="Namespace of the Gateway. Default: that of the session."
    )
    section_name: ObjectRef | None = Field(
        default=None, description="The listener of the Gateway. Default: each one that accepts the route."
    )
    hostname: str = Field(
        min_length=1, max_length=253, description="Host of the public URL, such as serve.example.com."
    )
    grpc_hostname: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Host for clients of the Open Inference Protocol over gRPC. Needs frontend.grpcPort. Default: they "
        "reach the session only in the cluster.",
    )


class Expose(SpecModel):
    """How clients outside of the cluster reach the session. Needs engine KubeRay."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "expose needs exactly one of ingress and gateway",
            lambda expose: (expose.ingress is None) != (expose.gateway is None),
            "has(self.ingress) != has(self.gateway)",
        ),
    )

    ingress: IngressExposure | None = Field(default=None, description="An Ingress with this host.")
    gateway: GatewayExposure | None = Field(default=None, description="Routes of this Gateway (Gateway API).")


def _serves_grpc(spec: Any) -> bool:
    gateway = spec.expose.gateway if spec.expose is not None else None
    return gateway is None or gateway.grpc_hostname is None or spec.frontend.grpc_port is not None


NEEDS_GRPC: Final = Rule(
    "expose.gateway.grpcHostname needs frontend.grpcPort; set it, or remove grpcHostname",
    _serves_grpc,
    "!has(self.expose) || !has(self.expose.gateway) || !has(self.expose.gateway.grpcHostname) || "
    "(has(self.frontend) && has(self.frontend.grpcPort))",
)
"""A rule of the whole spec."""


class HostClaim(StatusModel):
    """A host that the session holds. Sessions of other namespaces cannot use it."""

    host: str = Field(max_length=253, description="The host.")
    since: Timestamp = Field(description="When the session got it.")
