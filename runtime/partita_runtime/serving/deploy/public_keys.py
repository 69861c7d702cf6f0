"""Public keys of the issuers of tokens, as data: JSON Web Keys (RFC 7517) of asymmetric signatures."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from partita_api.meta import SpecModel

MAX_KEYS: Final = 16
"""Public keys of one issuer."""

Number = Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]
"""A number in base64url."""


class KeyType(StrEnum):
    """The kind of a public key."""

    RSA = "RSA"
    EC = "EC"
    OKP = "OKP"


class Curve(StrEnum):
    """The curve of a public key of type EC or OKP."""

    P_256 = "P-256"
    P_384 = "P-384"
    P_521 = "P-521"
    ED25519 = "Ed25519"


class SignatureAlgorithm(StrEnum):
    """How tokens are signed. All are asymmetric: who verifies a token cannot make one."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


ALGORITHMS: Final[Mapping[KeyType | Curve, tuple[SignatureAlgorithm, ...]]] = {
    KeyType.RSA: tuple(a for a in SignatureAlgorithm if a.startswith(("RS", "PS"))),
    Curve.P_256: (SignatureAlgorithm.ES256,),
    Curve.P_384: (SignatureAlgorithm.ES384,),
    Curve.P_521: (SignatureAlgorithm.ES512,),
    Curve.ED25519: (SignatureAlgorithm.EDDSA,),
}
"""The algorithms of a key, by its curve, or by its type if it has none."""


class PublicKey(SpecModel):
    """A public key of an issuer. Its fields have the names of RFC 7518; it has no private number."""

    kty: KeyType
    kid: str = Field(default="", max_length=256)
    """Id of the key, as in the tokens' headers. Only a single key needs none."""
    alg: SignatureAlgorithm | None = None
    """The algorithm of its signatures; None for each one of its type and curve."""
    n: Annotated[Number, Field(min_length=342, max_length=683)] | None = None
    """Modulus of an RSA key, of 2048 to 4096 bits."""
    e: Annotated[Number, Field(max_length=6)] | None = None
    """Exponent of an RSA key: one of many bits would make each signature slow."""
    crv: Curve | None = None
    x: Annotated[Number, Field(max_length=88)] | None = None
    y: Annotated[Number, Field(max_length=88)] | None = None

    @model_validator(mode="after")
    def _has_its_parts(self) -> Self:
        match self.kty:
            case KeyType.RSA:
                complete = self.n is not None and self.e is not None and self.crv is None
            case KeyType.EC:
                complete = self.crv not in (None, Curve.ED25519) and self.x is not None and self.y is not None
            case KeyType.OKP:
                complete = self.crv is Curve.ED25519 and self.x is not None
        if not complete:
            raise ValueError(f"the key of type {self.kty} is not complete")
        if self.alg is not None and self.alg not in ALGORITHMS[self.crv or self.kty]:
            raise ValueError(f"the key of type {self.kty} has no signatures of {self.alg}")
        return self

    @property
    def algorithms(self) -> tuple[SignatureAlgorithm, ...]:
        """The algorithms of signatures that it verifies."""
        return (self.alg,) if self.alg is not None else ALGORITHMS[self.crv or self.kty]
