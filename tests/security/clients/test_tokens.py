"""Forged and foreign tokens: frontends answer none of their requests, by HTTP or gRPC."""

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.runtime.serving.in_process.stand import on_its_own_port, stand
from tests.security.clients.entrances import APP, ENTRANCES, Entrance, HttpEntrance, allow, entrance

from partita_runtime.serving.authentication import tokens
from partita_runtime.serving.authentication.authenticator import Authenticator, UnauthenticatedError
from partita_runtime.serving.authentication.tokens import TokenError, TokenVerifier
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, TokenRules, key_digest
from partita_runtime.serving.deploy.public_keys import PublicKey, SignatureAlgorithm

ISSUER, AUDIENCE = "https://login.example.com", "partita"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CURVE, STOLEN = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
EDWARDS = ed25519.Ed25519PrivateKey.generate()
ANY: Final[dict[str, Any]] = {}


def jwk(private: Any, kid: str, **fields: str) -> PublicKey:
    """The public key as its issuer publishes it."""
    algorithm = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    made = next((a for kind, a in algorithm.items() if isinstance(private, kind)), OKPAlgorithm)
    published = made.to_jwk(private.public_key(), as_dict=True)
    known = {name: value for name, value in published.items() if name in PublicKey.model_fields}
    return PublicKey.model_validate({**known, "kid": kid, **fields})


KEYS = (jwk(RSA, "rsa", alg="RS256"), jwk(CURVE, "curve"), jwk(EDWARDS, "edwards"))
RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE, "other"), keys=KEYS, claims={"groups": ("ml", "ops")})


def claims(**changes: Any) -> dict[str, Any]:
    """Those of a valid token, with changes; None leaves a claim out."""
    now = int(time.time())
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "shop", "iat": now, "exp": now + 300, "groups": ["web", "ml"]}
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def signed(
    private: Any = RSA, alg: str = "RS256", kid: str | None = "rsa", header: dict[str, Any] = ANY, **c: Any
) -> str:
    ids = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**c), private, algorithm=alg, headers={**ids, **header})


def encoded(part: bytes | dict[str, Any]) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: dict[str, Any] | bytes, signature: Callable[[bytes], bytes] = lambda _: b"", **c: Any) -> str:
    """A token that no library makes."""
    content = f"{encoded(header)}.{encoded(claims(**c))}"
    return f"{content}.{encoded(signature(content.encode()))}"


def with_public_key_as_secret(encoding: Encoding, format: PublicFormat) -> str:
    secret = RSA.public_key().public_bytes(encoding, format)
    return by_hand({"alg": "HS256", "kid": "rsa"}, lambda content: hmac.digest(secret, content, "sha256"))


def changed_claims() -> str:
    head, _, signature = signed(groups=["web"]).split(".")
    return f"{head}.{encoded(claims())}.{signature}"


@pytest.fixture(params=ENTRANCES)
async def way_in(request: pytest.FixtureRequest) -> AsyncIterator[Entrance]:
    """Each entrance of a session that accepts tokens of ISSUER."""
    async with entrance(request.param, AllowedClients(salt="uid", tokens=RULES)) as made:
        yield made


ATTACKER = {"alg": "ES256", "kid": "curve"}
FORGED = {
    "alg none": lambda: by_hand({"alg": "none", "kid": "rsa"}),
    "alg None in other case": lambda: by_hand({"alg": "nOnE", "kid": "rsa"}),
    "alg missing": lambda: by_hand({"kid": "rsa"}),
    "alg is a list": lambda: by_hand({"alg": ["RS256"], "kid": "rsa"}),
    "no signature": lambda: ".".join([*signed().split(".")[:2], ""]),
    "a cut signature": lambda: signed()[:-8],
    "signature of another token": lambda: ".".join([*signed(sub="x").split(".")[:2], signed().split(".")[2]]),
    "changed claims": changed_claims,
    "HS256 with the public key (PKCS 8) as secret": lambda: with_public_key_as_secret(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    ),
    "HS256 with the public key (PKCS 1) as secret": lambda: with_public_key_as_secret(Encoding.PEM, PublicFormat.PKCS1),
    "HS256 with the modulus as secret": lambda: by_hand(
        {"alg": "HS256", "kid": "rsa"}, lambda content: hmac.digest((KEYS[0].n or "").encode(), content, "sha256")
    ),
    "HS256 with an empty secret": lambda: by_hand(
        {"alg": "HS256", "kid": "rsa"}, lambda content: hmac.digest(b"", content, "sha256")
    ),
    "a key of somebody else": lambda: signed(OTHER_RSA),
    "a key of somebody else, unknown kid": lambda: signed(OTHER_RSA, kid="other"),
    "kid of another key": lambda: signed(CURVE, "ES256", kid="rsa"),
    "kid of another key, with its algorithm": lambda: by_hand(
        {"alg": "RS256", "kid": "curve"}, lambda content: RSAAlgorithm(RSAAlgorithm.SHA256).sign(content, RSA)
    ),
    "no kid, several keys": lambda: signed(kid=None),
    "kid is a path": lambda: signed(kid="../../../../dev/null"),
    "kid is empty": lambda: signed(kid=""),
    "kid is a number": lambda: by_hand({"alg": "RS256", "kid": 1}),
    "kid is a list": lambda: by_hand({"alg": "RS256", "kid": ["rsa"]}),
    "another algorithm than the key's": lambda: signed(RSA, "RS512"),
    "another padding than the key's": lambda: signed(RSA, "PS256"),
    "jku of the attacker": lambda: signed(OTHER_RSA, header={"jku": "http://127.0.0.1:1/keys"}),
    "jku of the attacker, unknown kid": lambda: signed(OTHER_RSA, kid="x", header={"jku": "http://127.0.0.1:1/keys"}),
    "x5u of the attacker": lambda: signed(OTHER_RSA, header={"x5u": "http://127.0.0.1:1/keys"}),
    "x5c of the attacker": lambda: signed(OTHER_RSA, header={"x5c": ["MIIB"]}),
    "jwk of the attacker": lambda: signed(
        STOLEN, "ES256", kid="curve", header={"jwk": jwk(STOLEN, "curve").model_dump(mode="json", exclude_none=True)}
    ),
    "crit": lambda: signed(header={"crit": ["exp"]}),
    "b64": lambda: by_hand({"alg": "RS256", "kid": "rsa", "b64": False, "crit": ["b64"]}),
    "a signature of zeros": lambda: by_hand(ATTACKER, lambda _: bytes(64)),
    "expired": lambda: signed(exp=int(time.time()) - 60),
    "expires never": lambda: signed(exp=None),
    "expires at infinity": lambda: signed(exp=float("inf")),
    "expires at a text": lambda: signed(exp="tomorrow"),
    "not valid yet": lambda: signed(nbf=int(time.time()) + 600),
    "issued in the future": lambda: signed(iat=int(time.time()) + 600),
    "no issuer": lambda: signed(iss=None),
    "another issuer": lambda: signed(iss=f"{ISSUER}/"),
    "the issuer in a list": lambda: by_hand({"alg": "EdDSA", "kid": "edwards"}, EDWARDS.sign, iss=[ISSUER]),
    "no audience": lambda: signed(aud=None),
    "another audience": lambda: signed(aud="shop"),
    "an audience that begins like it": lambda: signed(aud=f"{AUDIENCE}-2"),
    "an empty audience": lambda: signed(aud=[]),
    "no group": lambda: signed(groups=None),
    "another group": lambda: signed(groups=["web"]),
    "a group that has its name in it": lambda: signed(groups="web ml"),
    "groups as an object": lambda: signed(groups={"ml": True}),
    "a nested header": lambda: f"{encoded(b'[' * 5000)}.{encoded(claims())}.{encoded(b'x')}",
    "nested claims": lambda: by_hand(b'{"alg":"EdDSA","kid":"edwards","x":' + b"[" * 3000 + b"}"),
    "a header that is a list": lambda: f"{encoded(b'[]')}.{encoded(claims())}.{encoded(b'x')}",
    "no base64": lambda: "!!!.???.***",
    "empty parts": lambda: "..",
    "two parts": lambda: ".".join(signed().split(".")[:2]),
    "five parts": lambda: f"{signed()}.x.y",
    "a long token": lambda: signed(padding="x" * 8000),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_tokens_that_are_not_accepted(forged: Callable[[], str]) -> None:
    authenticator = Authenticator()
    authenticator.allow(AllowedClients(salt="uid", tokens=RULES))
    with pytest.raises(UnauthenticatedError) as refused:
        authenticator.check([f"Bearer {forged()}"])
    assert 'error="invalid_' in refused.value.challenge


async def test_no_entrance_accepts_one_of_them(way_in: Entrance, caplog: pytest.LogCaptureFixture) -> None:
    answers = {name: await way_in.infer([f"Bearer {forged()}"]) for name, forged in FORGED.items()}
    assert [name for name, (status, challenge) in answers.items() if status != "401" or "error=" not in challenge] == []
    assert way_in.running.session.meter.arrived == 0
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


ACCEPTED = {
    "RS256": signed,
    "ES256": lambda: signed(CURVE, "ES256", kid="curve"),
    "EdDSA": lambda: signed(EDWARDS, "EdDSA", kid="edwards"),
    "several audiences": lambda: signed(aud=["shop", AUDIENCE]),
    "a group as text": lambda: signed(groups="ops"),
    "clocks that differ a little": lambda: signed(nbf=int(time.time()) + 10, exp=int(time.time()) - 10),
    "no time of issue": lambda: signed(iat=None),
    "a token of almost 8 kB": lambda: signed(padding="x" * 5500),
}


async def test_tokens_that_are_accepted(way_in: Entrance) -> None:
    made = {name: f"Bearer {token()}" for name, token in ACCEPTED.items()}
    for attempt in ("first", "verified before"):
        answers = {name: await way_in.infer([token]) for name, token in made.items()}
        assert answers == dict.fromkeys(ACCEPTED, ("200", "")), attempt


async def test_no_credentials_and_keys_beside_tokens(way_in: Entrance) -> None:
    key = "0123456789abcdef0123456789abcdef"
    assert (await way_in.infer([]))[0] == "401"
    assert (await way_in.infer([f"Bearer {key}"]))[0] == "401"
    allow(way_in.running, AllowedClients(salt="uid", api_keys=(key_digest("uid", key.encode()),), tokens=RULES))
    assert [(await way_in.infer([f"Bearer {value}"]))[0] for value in (key, signed())] == ["200", "200"]


async def test_a_removed_key_ends_the_tokens_that_were_verified_with_it() -> None:
    async with stand(APP, way=on_its_own_port) as running:
        way_in, token = HttpEntrance(running), [f"Bearer {signed()}"]
        allow(running, AllowedClients(tokens=RULES))
        assert (await way_in.infer(token))[0] == "200"
        allow(running, AllowedClients(tokens=RULES.model_copy(update={"keys": KEYS[1:]})))
        assert (await way_in.infer(token))[0] == "401"


async def test_jku_and_x5u_are_not_connected_to() -> None:
    connections = []
    server = await asyncio.start_server(lambda *connection: connections.append(connection), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    async with entrance(ENTRANCES[1], AllowedClients(tokens=RULES)) as way_in:
        for header in ({"jku": url}, {"x5u": url}):
            assert (await way_in.infer([f"Bearer {signed(OTHER_RSA, kid='new', header=header)}"]))[0] == "401"
    server.close()
    assert connections == []


@pytest.mark.parametrize(
    ("lifetime", "later", "want_again"),
    [
        pytest.param(300, 200, False, id="valid"),
        pytest.param(300, 300 + tokens.LEEWAY_SECONDS + 2, True, id="expired"),
        pytest.param(10 * tokens.MOST_SECONDS, tokens.MOST_SECONDS + 2, True, id="valid for long"),
    ],
)
def test_how_long_a_token_is_not_verified_again(
    monkeypatch: pytest.MonkeyPatch, lifetime: int, later: int, want_again: bool
) -> None:
    now, decode, verified = time.time(), jwt.decode, []
    clock = [now]
    monkeypatch.setattr(tokens.jwt, "decode", lambda *args, **options: verified.append(1) or decode(*args, **options))
    verifier, token = TokenVerifier(RULES, clock=lambda: clock[0]), signed(exp=int(now) + lifetime).encode()
    for clock[0] in (now, now + 1, now + later):
        verifier.verify(token)
    assert len(verified) == 1 + want_again


def test_so_many_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody with many valid tokens does not fill the frontend's memory."""
    monkeypatch.setattr(tokens, "MOST_REMEMBERED", 3)
    verifier = TokenVerifier(RULES)
    for number in range(8):
        verifier.verify(signed(EDWARDS, "EdDSA", kid="edwards", sub=str(number)).encode())
    assert len(verifier._remembered) == 3


def test_one_key_needs_no_kid() -> None:
    rules = RULES.model_copy(update={"keys": (jwk(EDWARDS, ""),)})
    TokenVerifier(rules).verify(signed(EDWARDS, "EdDSA", kid=None).encode())


def test_a_point_that_is_not_on_its_curve() -> None:
    """It verifies nothing, and the other keys do."""
    broken = KEYS[1].model_copy(update={"x": KEYS[1].y, "kid": "broken"})
    verifier = TokenVerifier(RULES.model_copy(update={"keys": (broken, *KEYS)}))
    verifier.verify(signed().encode())
    with pytest.raises(TokenError, match="names no key"):
        verifier.verify(signed(CURVE, "ES256", kid="broken").encode())


def test_no_algorithm_is_symmetric() -> None:
    assert [name for name in SignatureAlgorithm if name.startswith("HS") or name == "none"] == []
