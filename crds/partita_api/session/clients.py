"""Who may send requests to a session, and how clients prove who they are."""

from typing import Annotated, ClassVar

from pydantic import Field

from partita_api.meta import Rule, SpecModel


class ApiKeys(SpecModel):
    """Keys that clients send, from a Secret."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Secret of the session's namespace: its keys are names of clients, its values their API keys, each "
        "of 16 to 512 visible ASCII characters. The platform limits the names (clients.allowedSecrets of the chart).",
    )


ClaimName = Annotated[str, Field(min_length=1, max_length=128)]
ClaimValues = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=16)
]


class Jwt(SpecModel):
    """Tokens (JSON Web Tokens) of an issuer, such as an OpenID provider."""

    issuer: str = Field(
        min_length=1,
        max_length=512,
        description="The tokens' claim iss, such as https://login.example.com. Without jwks it must be one of "
        "clients.issuers of the chart.",
    )
    audiences: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        min_length=1, max_length=8, description="A token's claim aud must have one of these."
    )
    claims: dict[ClaimName, ClaimValues] = Field(
        default={},
        max_length=8,
        description="Other claims that a token must have, each with one of these values. Of a claim that is a list, "
        "one item must be among them; of scope and scp, one word.",
    )
    jwks: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="Public keys of the issuer: the text of its JSON Web Key Set, as its jwks_uri answers it. Default: "
        "what the operator reads at the jwksUri of the issuer in clients.issuers of the chart.",
    )


class Clients(SpecModel):
    """The clients whose requests the session answers. All others get 401, or UNAUTHENTICATED by gRPC."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "clients needs apiKeys or jwt",
            lambda clients: clients.api_keys is not None or clients.jwt is not None,
            "has(self.apiKeys) || has(self.jwt)",
        ),
    )

    api_keys: ApiKeys | None = Field(
        default=None, description="Clients that send one of these keys, as `Authorization: Bearer KEY`."
    )
    jwt: Jwt | None = Field(
        default=None, description="Clients that send a token of this issuer, as `Authorization: Bearer TOKEN`."
    )
