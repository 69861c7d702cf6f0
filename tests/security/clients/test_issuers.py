"""Issuers of tokens that answer the operator with what could harm it, and servers in their place."""

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import ValidationError
from tests.runtime.serving.in_process.stand import until
from tests.security.clients.hostile_server import Answering, complete, endless, server, silence

from partita_devtools.machine.certificates import create_authority, issue_server_certificate
from partita_operator.issuers import issuers
from partita_operator.issuers.issuers import Issuers
from partita_operator.settings.clients import ClientSettings, IssuerSettings

ISSUER = "https://login.example.com"


def published(private: Any, algorithm: Any, **fields: Any) -> dict[str, Any]:
    """The public key as an OpenID provider publishes it."""
    made: dict[str, Any] = algorithm.to_jwk(private.public_key(), as_dict=True)
    return {**{name: value for name, value in made.items() if name != "key_ops"}, **fields}


RSA = published(rsa.generate_private_key(public_exponent=65537, key_size=2048), RSAAlgorithm, kid="rsa", use="sig")
CURVE = published(ec.generate_private_key(ec.SECP256R1()), ECAlgorithm, kid="curve", alg="ES256")
EDWARDS = published(ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm, kid="edwards", x5c=["MIIB"], x5t="x")
SMALL = published(rsa.generate_private_key(public_exponent=65537, key_size=1024), RSAAlgorithm, kid="small")
PRIVATE: dict[str, Any] = RSAAlgorithm.to_jwk(
    rsa.generate_private_key(public_exponent=65537, key_size=2048), as_dict=True
)


def key_set(*keys: Any) -> Answering:
    return complete(json.dumps({"keys": keys}).encode(), "Content-Type: application/json")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """The certificate of a server on this machine, and that of its authority (PEM)."""
    folder: Path = tmp_path_factory.mktemp("authority")
    authority = create_authority(folder)
    pair = issue_server_certificate(authority, folder, "issuer")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context, authority.certificate.read_text()


@contextlib.asynccontextmanager
async def watched(url: str, authority: str) -> AsyncIterator[Issuers]:
    """The operator's view of the issuer with this URL."""
    setting = IssuerSettings(issuer=ISSUER, jwks_uri=f"{url}/keys", namespaces=("*",), ca_certificates=authority)
    found = Issuers([setting], read_again_seconds=0.1, retry_seconds=0.1)
    watching = asyncio.create_task(found.watch())
    try:
        yield found
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def is_read(found: Issuers) -> bool:
    known = found.keys(ISSUER)
    return bool(known.keys) or "not been read" not in known.problem


@pytest.mark.parametrize(
    ("answering", "want_kids", "want_problem"),
    [
        pytest.param(key_set(RSA, CURVE, EDWARDS), ["rsa", "curve", "edwards"], "", id="three kinds of keys"),
        pytest.param(key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "hmac"}, RSA), ["rsa"], "", id="a shared secret"),
        pytest.param(key_set({**RSA, "use": "enc", "kid": "other"}, RSA), ["rsa"], "", id="a key for encryption"),
        pytest.param(key_set(SMALL, RSA), ["rsa"], "", id="a small key"),
        pytest.param(key_set({**CURVE, "x": CURVE["y"]}, RSA), ["rsa"], "", id="a point that is not on its curve"),
        pytest.param(key_set({**RSA, "alg": "HS256"}, CURVE), ["curve"], "", id="a symmetric algorithm of an RSA key"),
        pytest.param(key_set({**RSA, "alg": "none"}, CURVE), ["curve"], "", id="no algorithm"),
        pytest.param(key_set({**RSA, "e": "A" * 600}, CURVE), ["curve"], "", id="a long exponent"),
        pytest.param(key_set("x", None, [], {**RSA, "kid": ["x"]}, RSA), ["rsa"], "", id="no keys among keys"),
        pytest.param(key_set(), [], "no key of signatures", id="no keys"),
        pytest.param(key_set(*[{**RSA, "kid": f"{n}"} for n in range(17)]), [], "more than 16", id="many keys"),
        pytest.param(complete(b"[]"), [], "not a JSON Web Key Set", id="a list"),
        pytest.param(complete(b'{"keys": {}}'), [], "not a JSON Web Key Set", id="an object of keys"),
        pytest.param(complete(b"<html>"), [], "not JSON", id="a page"),
        pytest.param(complete(b"[" * 100_000), [], "not JSON", id="deep nesting"),
        pytest.param(complete(gzip.compress(bytes(1 << 20)), "Content-Encoding: gzip"), [], "compressed", id="gzip"),
        pytest.param(endless(bytes(1 << 16), 0), [], "more than 262,144 bytes", id="an answer without end"),
        pytest.param(endless(b" ", 0.05), [], "in time", id="dripping bytes"),
        pytest.param(silence, [], "in time", id="silence"),
        pytest.param(complete(b"", status="500 Failed"), [], "status is 500", id="an error"),
        pytest.param(
            complete(b"", "Location: http://169.254.169.254/", status="302 Found"), [], "status is 302", id="a redirect"
        ),
    ],
)
async def test_answers_of_an_issuer(
    monkeypatch: pytest.MonkeyPatch,
    tls: tuple[ssl.SSLContext, str],
    answering: Answering,
    want_kids: list[str],
    want_problem: str,
) -> None:
    monkeypatch.setattr(issuers, "ANSWER_SECONDS", 1.0)
    async with server(answering, tls[0]) as (url, _), watched(url, tls[1]) as found:
        await until(lambda: is_read(found), "the issuer was asked")
        known = found.keys(ISSUER)
    assert [key.kid for key in known.keys] == want_kids
    assert want_problem in known.problem
    assert bool(known.problem) is bool(want_problem)


async def test_no_private_number_of_a_key_is_kept(tls: tuple[ssl.SSLContext, str]) -> None:
    async with server(key_set({**PRIVATE, "kid": "private"}), tls[0]) as (url, _), watched(url, tls[1]) as found:
        await until(lambda: is_read(found), "the issuer was asked")
        (key,) = found.keys(ISSUER).keys
        assert PRIVATE["d"] not in key.model_dump_json()


async def test_the_last_keys_stay_while_the_issuer_fails(tls: tuple[ssl.SSLContext, str]) -> None:
    """And new ones are read once it answers again."""
    answers = [key_set(RSA)]

    async def answering(writer: asyncio.StreamWriter) -> None:
        await answers[-1](writer)

    async with server(answering, tls[0]) as (url, _), watched(url, tls[1]) as found:
        await until(lambda: is_read(found), "the issuer was asked")
        answers.append(complete(b"", status="503 Away"))
        await until(lambda: found.keys(ISSUER).problem, "the failure was noticed")
        assert [key.kid for key in found.keys(ISSUER).keys] == ["rsa"]
        answers.append(key_set(CURVE))
        await until(lambda: not found.keys(ISSUER).problem, "the issuer answers again")
        assert [key.kid for key in found.keys(ISSUER).keys] == ["curve"]


async def test_a_server_without_a_certificate_of_the_authority(tls: tuple[ssl.SSLContext, str], tmp_path: Path) -> None:
    other = create_authority(tmp_path).certificate.read_text()
    for authority in (other, ""):
        async with server(key_set(RSA), tls[0]) as (url, requests), watched(url, authority) as found:
            await until(lambda found=found: is_read(found), "the issuer was asked")
            assert ("certificate" in found.keys(ISSUER).problem.lower(), requests) == (True, [])


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"jwks_uri": "http://login.example.com/keys"}, "must begin with https://", id="not encrypted"),
        pytest.param({"jwks_uri": "file:///etc/passwd"}, "should match pattern", id="a file"),
        pytest.param({"jwks_uri": "https://user:password@login.example.com/"}, "should match pattern", id="a password"),
        pytest.param({"ca_certificates": "not PEM"}, "PEM", id="no certificates"),
        pytest.param({"namespaces": ["*x"]}, "should match pattern", id="no namespace"),
    ],
)
def test_settings_of_an_issuer_that_are_refused(fields: dict[str, Any], want: str) -> None:
    with pytest.raises(ValidationError, match=want):
        IssuerSettings.model_validate({"issuer": ISSUER, "jwks_uri": "https://login.example.com/keys", **fields})


def test_an_issuer_is_there_once_and_for_its_namespaces() -> None:
    one = IssuerSettings(issuer=ISSUER, jwks_uri="https://login.example.com/keys", namespaces=("team-a",))
    with pytest.raises(ValidationError, match="only once"):
        ClientSettings(issuers=(one, one))
    settings = ClientSettings(issuers=(one,))
    assert settings.issuer_for(ISSUER, "team-a") is one
    assert settings.issuer_for(ISSUER, "team-b") is None
    assert settings.issuer_for(f"{ISSUER}/", "team-a") is None
