"""What a running operator authenticates clients with: API keys of a Secret, which it writes nowhere, and issuers."""

import json
from base64 import b64encode
from typing import Any

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session
from tests.security.clients.hostile_server import complete, server

from partita_operator.settings.clients import ClientSettings, IssuerSettings
from partita_runtime.serving.deploy.allowed_clients import key_digest

pytestmark = pytest.mark.apiserver

KEY, OTHER = "f3c1a0b9d2e84f6a97b5c3d1e0f2a4b6", "0123456789abcdef0123456789abcdef"
CLIENTS = {"apiKeys": {"secretName": "partita-clients"}}


def secret(**keys: str) -> dict[str, Any]:
    data = {name: b64encode(key.encode()).decode() for name, key in keys.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "partita-clients"}, "data": data}


async def accepting(namespace: Kubectl, operators: Operators, *keys: str) -> None:
    """Wait until the frontends accept exactly these keys."""

    def digests() -> tuple[list[str], str]:
        spec = operators.engine.applied.get(f"{namespace.namespace}/traffic")
        return (sorted(spec.clients.api_keys), spec.clients.salt) if spec is not None and spec.clients else ([], "")

    await eventually(
        digests, lambda found: found[0] == sorted(key_digest(found[1], key.encode()) for key in keys) and found[1]
    )


async def test_a_changed_secret_counts_without_a_restart(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), secret(shop=KEY), session("traffic", clients=CLIENTS))
    async with operators.running():
        await accepting(namespace, operators, KEY)
        plan = operators.engine.applied[f"{namespace.namespace}/traffic"].plan.metadata.name
        namespace.apply(secret(shop=KEY, app=OTHER))
        await accepting(namespace, operators, KEY, OTHER)
        namespace.apply(secret(app=OTHER))
        await accepting(namespace, operators, OTHER)
        assert operators.engine.applied[f"{namespace.namespace}/traffic"].plan.metadata.name == plan

        namespace("delete", "secret", "partita-clients")
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "ClientSecretMissing")
        )
        assert condition(found, "Stalled")["status"] == "True"


async def test_no_object_has_a_key_or_its_digest(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), secret(shop=KEY, short="short"), session("traffic", clients=CLIENTS))
    async with operators.running():
        await accepting(namespace, operators, KEY)
        await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: reason(s, "ClientsAuthenticated") == ("False", "InvalidClientKeys"),
        )
        spec = operators.engine.applied[f"{namespace.namespace}/traffic"]
        assert spec.clients is not None
        (digest,) = spec.clients.api_keys
        written = json.dumps([namespace.list(kind) for kind in ("isess", "pplan", "events", "configmaps")])
        assert [text for text in (KEY, b64encode(KEY.encode()).decode(), digest) if text in written] == []


async def test_the_public_keys_of_an_issuer_reach_the_frontends(namespace: Kubectl, operators: Operators) -> None:
    key = {"kty": "OKP", "crv": "Ed25519", "kid": "first", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    jwt = {"issuer": "https://login.example.com", "audiences": ["partita"]}
    async with server(complete(json.dumps({"keys": [key]}).encode())) as (url, _):
        issuer = IssuerSettings(
            issuer=jwt["issuer"], jwks_uri=f"{url}/keys", namespaces=(namespace.namespace,), allow_http=True
        )
        operators.settings = operators.settings.model_copy(update={"clients": ClientSettings(issuers=(issuer,))})
        namespace.apply(pool("fast"), session("traffic", clients={"jwt": jwt}))
        async with operators.running():
            await eventually(
                lambda: namespace.get("isess", "traffic"),
                lambda s: reason(s, "ClientsAuthenticated") == ("True", "ClientsAuthenticated"),
            )
            key_of = f"{namespace.namespace}/traffic"
            spec = await eventually(lambda: operators.engine.applied.get(key_of), lambda spec: spec is not None)
    assert spec is not None
    assert spec.clients is not None
    assert spec.clients.tokens is not None
    assert [found.kid for found in spec.clients.tokens.keys] == ["first"]
