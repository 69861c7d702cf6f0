"""Settings of clients: how sessions may authenticate them."""

import ssl
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from partita_operator.settings.section import Namespace, Section

ALL_NAMESPACES: Final = "*"


class IssuerSettings(Section):
    """An issuer of tokens that sessions may name in spec.clients.jwt.issuer."""

    issuer: str = Field(min_length=1, max_length=512, description="The tokens' claim iss.")
    jwks_uri: str = Field(
        pattern=r"^https?://[^/@]+(/.*)?$",
        max_length=2048,
        description="URL of the issuer's public keys, as jwks_uri in its /.well-known/openid-configuration. The "
        "operator reads it every minute.",
    )
    namespaces: tuple[Namespace | Annotated[str, Field(pattern=r"^\*$")], ...] = Field(
        default=(),
        description="Namespaces whose sessions may name the issuer. * stands for all of them. Empty: none.",
    )
    ca_certificates: str = Field(
        default="",
        max_length=65_536,
        description="Certificates (PEM) of the authorities that the server of jwksUri may have. Empty: public ones.",
    )
    allow_http: bool = Field(
        default=False,
        description="Whether jwksUri may be http://. Everyone on the way to it can then make tokens.",
    )

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if not self.jwks_uri.startswith("https://") and not self.allow_http:
            raise ValueError(f"jwksUri {self.jwks_uri} must begin with https://; else set allowHttp")
        return self

    @field_validator("ca_certificates")
    @classmethod
    def _are_certificates(cls, text: str) -> str:
        try:
            ssl.create_default_context(cadata=text or None)
        except ssl.SSLError:
            raise ValueError("caCertificates must have certificates in PEM format") from None
        return text

    def admits(self, namespace: str) -> bool:
        """Whether sessions of the namespace may name the issuer."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


class Required(StrEnum):
    """Which sessions must authenticate their clients."""

    NEVER = "Never"
    EXPOSED = "Exposed"
    ALWAYS = "Always"


class ClientSettings(Section):
    """How sessions may authenticate their clients."""

    required: Required = Field(
        default=Required.NEVER,
        description="Which sessions must authenticate their clients. Never: none. Exposed: those with a public address "
        "by spec.expose; others get none. Always: all; others are not started, and running ones refuse all requests.",
    )

    allowed_secrets: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        default=("partita-clients",),
        description="Names of Secrets that sessions may name in spec.clients.apiKeys.secretName. The operator may read "
        "the Secrets of these names in the namespaces of sessions. Empty: no API keys, and no right.",
    )
    issuers: tuple[IssuerSettings, ...] = Field(
        default=(),
        max_length=64,
        description="Issuers of tokens whose public keys the operator reads. A session that has the keys itself "
        "(spec.clients.jwt.jwks) may name any issuer.",
    )

    @model_validator(mode="after")
    def _each_issuer_once(self) -> Self:
        names = [found.issuer for found in self.issuers]
        if len(set(names)) < len(names):
            raise ValueError("each issuer of clients.issuers may appear only once")
        return self

    def issuer_for(self, issuer: str, namespace: str) -> IssuerSettings | None:
        """The issuer, if sessions of the namespace may name it."""
        return next((found for found in self.issuers if found.issuer == issuer and found.admits(namespace)), None)
