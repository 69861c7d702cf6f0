"""The CPU time that the authentication of clients adds to a request on a frontend's own HTTP port.

A frontend without replicas answers requests for the server's metadata, the shortest ones that need credentials, so that
the difference between the ways stands out. Each way is measured several times, in turns with the others; the result is
the least CPU time per request, in microseconds. Beside it is the check alone: the first one of a token, and the later
ones.

    python benchmarks/serving/authentication.py [--requests N] [--rounds N]
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from partita_runtime.serving.authentication.authenticator import Authenticator
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, TokenRules, key_digest
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.public_keys import PublicKey
from partita_runtime.serving.ingress.http_server import HttpServer
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

CONNECTIONS = 16
SALT, ISSUER, AUDIENCE = "benchmark", "https://login.example.com", "partita"


@dataclass(frozen=True)
class Way:
    """A way to authenticate."""

    name: str
    allowed: AllowedClients | None
    credentials: tuple[str, ...] = ()
    """What clients send, in turns."""


def everybody() -> Way:
    """No authentication."""
    return Way("everybody", None)


def api_keys(count: int) -> Way:
    """So many clients with API keys."""
    keys = [sha256(b"%d" % number).hexdigest() for number in range(count)]
    allowed = AllowedClients(salt=SALT, api_keys=tuple(key_digest(SALT, key.encode()) for key in keys))
    return Way(f"an API key of {count}", allowed, tuple(f"Bearer {key}" for key in keys[:CONNECTIONS]))


def tokens(algorithm: str, private: Any, kind: Any) -> Way:
    """Tokens that are signed in this way, with the claims of an OpenID provider."""
    published = kind.to_jwk(private.public_key(), as_dict=True)
    key = PublicKey.model_validate({name: value for name, value in published.items() if name in PublicKey.model_fields})
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3600, "groups": ["a", "b"], "azp": "client"}
    made = (jwt.encode({**claims, "sub": f"client-{n}"}, private, algorithm=algorithm) for n in range(CONNECTIONS))
    allowed = AllowedClients(tokens=TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), keys=(key,)))
    return Way(f"a token ({algorithm})", allowed, tuple(f"Bearer {token}" for token in made))


def main() -> None:
    """Measures every way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000, help="requests of a round (default 20000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way (default 5)")
    options = parser.parse_args()
    ways = (
        everybody(),
        api_keys(256),
        tokens("RS256", rsa.generate_private_key(public_exponent=65537, key_size=2048), RSAAlgorithm),
        tokens("ES256", ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
        tokens("EdDSA", ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm),
    )
    ours, theirs = get_context("spawn").Pipe()
    frontend = get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    frontend.start()
    port = ours.recv()
    rounds = [[request_micros(ours, port, way, options.requests) for way in ways] for _ in range(options.rounds)]
    rows = []
    for way, found in zip(ways, zip(*rounds, strict=True), strict=True):
        first, later = check_micros(way, options.requests)
        rows.append({"way": way.name, "request": min(found), "first_check": first, "check": later})
        print(f"{way.name:20} {min(found):6.1f} us per request; the check: first {first:.1f}, later {later:.2f} us")
    print(json.dumps({"requests": options.requests, "rounds": options.rounds, "micros": rows}))
    frontend.terminate()


def check_micros(way: Way, requests: int) -> tuple[float, float]:
    """The CPU time of the check alone: the first one of what a client sends, and later ones."""
    sent = [(value,) for value in way.credentials] or [()]

    def checked() -> Authenticator:
        made = Authenticator()
        made.allow(way.allowed)
        return made

    fresh = [checked() for _ in range(20)]
    first = _micros([lambda made=made, value=value: made.check(value) for made in fresh for value in sent])
    return first, _micros([lambda value=value: fresh[0].check(value) for value in sent] * (requests // len(sent)))


def _micros(calls: Sequence[Callable[[], None]]) -> float:
    before = time.process_time()
    for call in calls:
        call()
    return (time.process_time() - before) / len(calls) * 1e6


def request_micros(frontend: "Connection[Any, Any]", port: int, way: Way, requests: int) -> float:
    """The frontend's CPU time per request."""
    frontend.send(way)
    before: float = frontend.recv()
    asyncio.run(send_all(port, way.credentials or ("",), requests))
    frontend.send(way)
    after: float = frontend.recv()
    return (after - before) / requests * 1e6


async def send_all(port: int, credentials: Sequence[str], requests: int) -> None:
    """Each connection sends its next request after the answer."""
    each = requests // CONNECTIONS
    await asyncio.gather(*(send(port, credentials[i % len(credentials)], each) for i in range(CONNECTIONS)))


async def send(port: int, credentials: str, requests: int) -> None:
    """The requests of one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    header = f"Authorization: {credentials}\r\n" if credentials else ""
    for _ in range(requests):
        writer.write(f"GET /v2 HTTP/1.1\r\nHost: frontend\r\n{header}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(head.decode())
        length = next(int(line[15:]) for line in head.splitlines() if line.startswith(b"content-length:"))
        await reader.readexactly(length)
    writer.close()


class NoReplicas:
    """A directory without replicas."""

    async def replicas(self, session_key: str) -> Sequence[Announcement]:
        """None."""
        return ()


def serve(control: "Connection[Any, Any]") -> None:
    """The frontend: for each way that it receives, it allows its clients and answers its CPU time so far."""
    asyncio.run(_serve(control))


async def _serve(control: "Connection[Any, Any]") -> None:
    session = Session("default/bench", FrontendSettings(function_processes=0), NoReplicas())
    control.send(await HttpServer(session).listen("127.0.0.1", 0))
    while True:
        way = await asyncio.to_thread(control.recv)
        session.clients.allow(way.allowed)
        control.send(time.process_time())


if __name__ == "__main__":
    main()
