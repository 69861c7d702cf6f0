"""Settings of public addresses: what sessions may request in spec.expose."""

from typing import Annotated, Final

from pydantic import Field

from partita_operator.settings.section import Section

NAMESPACE_PLACEHOLDER: Final = "{namespace}"
"""In a pattern of hosts: the namespace of the session."""
_LABEL: Final = r"(\*|\{namespace\}|[a-z0-9]([-a-z0-9]*[a-z0-9])?)"

HostPattern = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
ObjectRef = Annotated[str, Field(min_length=1, max_length=253)]
GatewayRef = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]


class ExposureSettings(Section):
    """The public addresses that sessions may have. By default none: session authors are not trusted with hosts."""

    allowed_hosts: tuple[HostPattern, ...] = Field(
        default=(),
        description="Hosts that sessions may use, such as *.{namespace}.example.com: * stands for one label, "
        "{namespace} for the session's namespace. Empty: none.",
    )
    allowed_ingress_classes: tuple[ObjectRef, ...] = Field(
        default=(),
        description="IngressClasses that sessions may use; the first one is the default. Empty: no Ingresses.",
    )
    allowed_gateways: tuple[GatewayRef, ...] = Field(
        default=(),
        description="Gateways that sessions may use, as namespace/name. Empty: no routes of the Gateway API.",
    )
    allowed_annotations: tuple[ObjectRef, ...] = Field(
        default=(),
        description="Keys of annotations that sessions may set on their Ingress, such as "
        "cert-manager.io/cluster-issuer. Empty: none.",
    )
    checked_tls_secrets: tuple[ObjectRef, ...] = Field(
        default=(),
        description="Names of Secrets with certificates whose existence the operator checks. It may then read the "
        "Secrets of these names in the namespaces of sessions.",
    )
