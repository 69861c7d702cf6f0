"""The public address of a session: an Ingress that leads to the session's Service."""

import re
from typing import Annotated, ClassVar, Final

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


class Expose(SpecModel):
    """How clients outside of the cluster reach the session. Needs engine KubeRay."""

    ingress: IngressExposure = Field(description="An Ingress with this host.")


class HostClaim(StatusModel):
    """A host that the session holds. Sessions of other namespaces cannot use it."""

    host: str = Field(max_length=253, description="The host.")
    since: Timestamp = Field(description="When the session got it.")
