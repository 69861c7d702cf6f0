"""Whose requests a session's frontends answer, and what its conditions say about that."""

import json

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.approval import Approval
from partita_api.session.clients import ApiKeys, Clients, Jwt
from partita_operator.reconcile.session.client_access import MAX_KEY_BYTES, MAX_KEYS
from partita_operator.reconcile.world import ClientsWorld, IssuerKeys
from partita_operator.settings.clients import ClientSettings, IssuerSettings, Required
from partita_operator.settings.model import OperatorSettings
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest
from partita_runtime.serving.deploy.public_keys import Curve, KeyType, PublicKey

OPEN = session("traffic").model("detector")
PROTECTED = OPEN.with_spec(clients=Clients(api_keys=ApiKeys(secret_name="partita-clients")))
ISSUER = "https://login.example.com"
POINT = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
FIRST, SECOND = (PublicKey(kty=KeyType.OKP, kid=kid, crv=Curve.ED25519, x=POINT) for kid in ("first", "second"))
TOKENS = Clients(jwt=Jwt(issuer=ISSUER, audiences=("partita",), claims={"groups": ("ml",)}))
OFFERED = ClientSettings(issuers=(IssuerSettings(issuer=ISSUER, jwks_uri=f"{ISSUER}/keys", namespaces=("default",)),))
KEY, OTHER = b"f3c1a0b9d2e84f6a97b5c3d1e0f2a4b6", b"0123456789abcdef0123456789abcdef"


def settled(
    desired: SessionBuilder = PROTECTED,
    clients: ClientsWorld | None = None,
    settings: ClientSettings = ClientSettings(),  # noqa: B008 - it is frozen
) -> SimulatedCluster:
    made = SimulatedCluster(clients=clients or ClientsWorld({"shop": KEY}), settings=OperatorSettings(clients=settings))
    made.add(pool("fast").build(), desired.build())
    made.run(15)
    return made


def accepted(made: SimulatedCluster) -> AllowedClients | None:
    return made.engine.applied["default/traffic"].clients


def accepts(made: SimulatedCluster, *keys: bytes) -> bool:
    """Whether exactly these keys are accepted."""
    found = accepted(made)
    return found is not None and set(found.api_keys) == {key_digest(found.salt, key) for key in keys}


def authenticated(made: SimulatedCluster) -> tuple[str, str]:
    return made.condition("traffic", "ClientsAuthenticated")


def message(made: SimulatedCluster) -> str:
    conditions = made.session("traffic").status.conditions
    return next(c.message for c in conditions if c.type == "ClientsAuthenticated")


@pytest.mark.parametrize(
    ("keys", "want_keys", "want_reason", "want_ready", "want_message"),
    [
        pytest.param({"shop": KEY}, [KEY], "ClientsAuthenticated", "Serving", "1 client has", id="a key"),
        pytest.param({"a": KEY, "b": OTHER}, [KEY, OTHER], "ClientsAuthenticated", "Serving", "2 clients", id="keys"),
        pytest.param({"a": KEY, "b": KEY}, [KEY], "ClientsAuthenticated", "Serving", "2 clients have", id="one key"),
        pytest.param({"a": KEY + b"\n"}, [KEY], "ClientsAuthenticated", "Serving", "1 client", id="with a new line"),
        pytest.param({"a": KEY[:16]}, [KEY[:16]], "ClientsAuthenticated", "Serving", "1 client", id="a short key"),
        pytest.param(
            {"a": KEY, "b": b"fifteen-bytes-x"},
            [KEY],
            "InvalidClientKeys",
            "Serving",
            "not accepted: b has fewer than 16 bytes",
            id="one that is too short",
        ),
        pytest.param(
            {"a": b"short" + b" " * 20}, [], "InvalidClientKeys", "InvalidClientKeys", "a has fewer", id="spaces"
        ),
        pytest.param({"a": b""}, [], "InvalidClientKeys", "InvalidClientKeys", "a has fewer", id="an empty key"),
        pytest.param(
            {"a": b"x" * (MAX_KEY_BYTES + 1)}, [], "InvalidClientKeys", "InvalidClientKeys", "a has more", id="long"
        ),
        pytest.param(
            {"a": b"\xc3\xa9" * 16}, [], "InvalidClientKeys", "InvalidClientKeys", "visible ASCII", id="not ASCII"
        ),
        pytest.param(
            {"a": b"two words that are long"}, [], "InvalidClientKeys", "InvalidClientKeys", "visible", id="a space"
        ),
        pytest.param({}, [], "InvalidClientKeys", "InvalidClientKeys", "has no API key", id="an empty Secret"),
        pytest.param(None, [], "ClientSecretMissing", "ClientSecretMissing", "does not exist", id="no Secret"),
    ],
)
def test_the_keys_of_a_secret(
    keys: dict[str, bytes] | None, want_keys: list[bytes], want_reason: str, want_ready: str, want_message: str
) -> None:
    made = settled(clients=ClientsWorld(keys))
    assert accepts(made, *want_keys)
    assert (authenticated(made)[1], made.condition("traffic", "Ready")[1]) == (want_reason, want_ready)
    assert want_message in message(made)
    assert not any(key.strip().decode("latin-1") in message(made) for key in (keys or {}).values() if key.strip())


def test_more_clients_than_a_session_may_have() -> None:
    keys = {f"client-{number:04}": b"%032d" % number for number in range(MAX_KEYS + 1)}
    made = settled(clients=ClientsWorld(keys))
    assert accepts(made, *[key for name, key in keys.items() if name != f"client-{MAX_KEYS:04}"])
    assert f"client-{MAX_KEYS:04} is beyond" in message(made)


def test_keys_change_without_another_plan() -> None:
    made = settled()
    plans = dict(made.plans)
    made.clients = ClientsWorld({"shop": OTHER})
    made.run(1)
    assert (accepts(made, OTHER), made.plans) == (True, plans)


def test_a_deleted_secret_revokes_all_keys() -> None:
    made = settled()
    made.clients = ClientsWorld(None)
    made.run(1)
    assert accepts(made)
    assert made.condition("traffic", "Ready") == ("False", "ClientSecretMissing")
    made.clients = ClientsWorld({"shop": KEY})
    made.run(1)
    assert accepts(made, KEY)
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_keys_stay_while_the_secret_cannot_be_read() -> None:
    made = settled()
    made.clients = ClientsWorld(problem="Partita may not read Secret default/partita-clients: forbidden.")
    made.run(5)
    assert accepts(made, KEY)
    assert authenticated(made) == ("Unknown", "ClientSecretUnreadable")
    assert made.condition("traffic", "Ready")[0] == "True"


def test_nothing_starts_while_the_secret_cannot_be_read() -> None:
    """Frontends that do not know their clients would have to answer everybody or nobody."""
    made = settled(clients=ClientsWorld(problem="Partita may not read Secret default/partita-clients: forbidden."))
    assert made.engine.applied == {}
    assert "Partita may not read" in next(
        c.message for c in made.session("traffic").status.conditions if c.type == "RolledOut"
    )


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(PROTECTED.planner(approval=Approval.MANUAL).rate(400), id="a plan that waits for approval"),
        pytest.param(PROTECTED.slo(1), id="no plan for the new SLO"),
    ],
)
def test_authentication_does_not_wait_for_the_plan_that_comes_with_it(held: SessionBuilder) -> None:
    made = settled(OPEN.planner(approval=Approval.AUTOMATIC))
    before = made.engine.applied["default/traffic"].plan.metadata.name
    assert accepted(made) is None
    made.add(held.build())
    made.run(15)
    assert made.engine.applied["default/traffic"].plan.metadata.name == before
    assert accepts(made, KEY)


def test_without_clients_in_the_spec_everybody_is_answered() -> None:
    made = settled(OPEN)
    types = [c.type for c in made.session("traffic").status.conditions]
    assert (accepted(made), "ClientsAuthenticated" in types) == (None, False)


def test_clients_that_were_removed_from_the_spec() -> None:
    made = settled()
    made.add(OPEN.build())
    made.run(5)
    assert (accepted(made), authenticated(made)) == (None, ("False", "EverybodyAccepted"))


def test_a_secret_that_the_platform_does_not_allow() -> None:
    """A session's author could otherwise get digests of any Secret of the namespace."""
    made = SimulatedCluster(clients=ClientsWorld({"password": KEY}))
    made.settings = OperatorSettings(clients=ClientSettings(allowed_secrets=("partita-clients",)))
    clients = Clients(api_keys=ApiKeys(secret_name="database"))
    made.add(pool("fast").build(), OPEN.with_spec(clients=clients).build())
    made.run(15)
    assert (made.engine.applied, made.condition("traffic", "Ready")) == ({}, ("False", "ForbiddenClients"))
    assert authenticated(made) == ("False", "ForbiddenClients")


def test_a_secret_that_the_platform_does_not_allow_any_more() -> None:
    made = settled()
    made.settings = OperatorSettings(clients=ClientSettings(allowed_secrets=()))
    made.run(5)
    assert accepts(made, KEY)
    assert made.condition("traffic", "Ready") == ("False", "ForbiddenClients")


def test_equal_keys_of_two_sessions_have_different_digests() -> None:
    made = settled()
    made.add(session("other").model("detector").with_spec(clients=PROTECTED.build().spec.clients).build())
    made.run(15)
    digests = [set(spec.clients.api_keys) for spec in made.engine.applied.values() if spec.clients is not None]
    assert len(digests) == 2
    assert not digests[0] & digests[1]


def token_keys(made: SimulatedCluster) -> list[str]:
    """Ids of the public keys with which tokens are verified."""
    found = accepted(made)
    return [key.kid for key in found.tokens.keys] if found is not None and found.tokens is not None else []


def test_tokens_of_an_issuer_that_the_platform_offers() -> None:
    made = settled(OPEN.with_spec(clients=TOKENS), ClientsWorld(issuer=IssuerKeys((FIRST,))), OFFERED)
    found = accepted(made)
    assert found is not None
    assert found.tokens is not None
    assert (found.tokens.issuer, found.tokens.audiences) == (ISSUER, ("partita",))
    assert (found.tokens.claims, found.api_keys) == ({"groups": ("ml",)}, ())
    assert authenticated(made) == ("True", "ClientsAuthenticated")
    made.clients = ClientsWorld(issuer=IssuerKeys((FIRST, SECOND)))
    made.run(1)
    assert token_keys(made) == ["first", "second"]


def test_the_last_keys_count_while_the_issuer_does_not_answer() -> None:
    made = settled(OPEN.with_spec(clients=TOKENS), ClientsWorld(issuer=IssuerKeys((FIRST,))), OFFERED)
    made.clients = ClientsWorld(issuer=IssuerKeys((FIRST,), f"{ISSUER}/keys: there was no complete answer in time."))
    made.run(5)
    assert (token_keys(made), authenticated(made)) == (["first"], ("Unknown", "IssuerUnavailable"))
    assert "no complete answer" in message(made)
    assert made.condition("traffic", "Ready")[0] == "True"


def test_a_new_operator_keeps_the_keys_of_an_issuer_that_does_not_answer() -> None:
    """It has none itself, and frontends have those that its predecessor has read."""
    made = settled(OPEN.with_spec(clients=TOKENS), ClientsWorld(issuer=IssuerKeys((FIRST,))), OFFERED)
    made.restart()
    made.clients = ClientsWorld(issuer=IssuerKeys((), f"{ISSUER}/keys: the answer's status is 503."))
    made.run(5)
    assert (token_keys(made), authenticated(made)) == (["first"], ("Unknown", "IssuerUnavailable"))


@pytest.mark.parametrize(
    ("clients", "settings"),
    [
        pytest.param(TOKENS, ClientSettings(), id="an issuer that is not offered"),
        pytest.param(
            TOKENS,
            ClientSettings(issuers=(IssuerSettings(issuer=ISSUER, jwks_uri=f"{ISSUER}/keys", namespaces=("team-a",)),)),
            id="an issuer of other namespaces",
        ),
        pytest.param(
            Clients(api_keys=ApiKeys(secret_name="database"), jwt=TOKENS.jwt), OFFERED, id="a Secret beside an issuer"
        ),
    ],
)
def test_what_the_platform_does_not_allow(clients: Clients, settings: ClientSettings) -> None:
    made = settled(OPEN.with_spec(clients=clients), ClientsWorld({"shop": KEY}, "", IssuerKeys((FIRST,))), settings)
    assert (made.engine.applied, made.condition("traffic", "Ready")) == ({}, ("False", "ForbiddenClients"))


def test_a_session_that_has_the_public_keys_may_name_any_issuer() -> None:
    key_set = json.dumps({"keys": [{**SECOND.model_dump(mode="json"), "use": "sig", "x5c": ["MIIB"]}]})
    jwt = Jwt(issuer=ISSUER, audiences=("partita",), jwks=key_set)
    made = settled(OPEN.with_spec(clients=Clients(jwt=jwt)), ClientsWorld())
    assert (token_keys(made), authenticated(made)) == (["second"], ("True", "ClientsAuthenticated"))


@pytest.mark.parametrize(
    ("key_set", "want"),
    [
        pytest.param("keys", "not JSON", id="no JSON"),
        pytest.param("[" * 60_000, "not JSON", id="deep nesting"),
        pytest.param("[]", "not a JSON Web Key Set", id="a list"),
        pytest.param('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no key of signatures", id="a shared secret"),
    ],
)
def test_a_key_set_in_the_session_that_cannot_be_used(key_set: str, want: str) -> None:
    clients = Clients(jwt=Jwt(issuer=ISSUER, audiences=("partita",), jwks=key_set))
    made = settled(OPEN.with_spec(clients=clients), ClientsWorld())
    assert (made.engine.applied, made.condition("traffic", "Ready")) == ({}, ("False", "InvalidSpec"))
    assert "spec.clients.jwt.jwks cannot be used: " in message(made)
    assert want in message(made)


def test_tokens_are_accepted_without_the_secret_of_the_keys() -> None:
    both = Clients(api_keys=ApiKeys(secret_name="partita-clients"), jwt=TOKENS.jwt)
    made = settled(OPEN.with_spec(clients=both), ClientsWorld(None, "", IssuerKeys((FIRST,))), OFFERED)
    assert token_keys(made) == ["first"]
    assert authenticated(made) == ("False", "ClientSecretMissing")
    assert made.condition("traffic", "Ready")[0] == "True"


UNREADABLE = ClientsWorld(problem="Partita may not read Secret default/partita-clients: forbidden.")
ALWAYS = ClientSettings(required=Required.ALWAYS)


def test_a_platform_that_requires_authentication_starts_no_open_session() -> None:
    made = settled(OPEN, settings=ALWAYS)
    assert (made.engine.applied, made.condition("traffic", "Ready")) == ({}, ("False", "AuthenticationRequired"))


@pytest.mark.parametrize(
    ("desired", "clients"),
    [
        pytest.param(OPEN, ClientsWorld(), id="no clients in the spec"),
        pytest.param(PROTECTED, UNREADABLE, id="clients that are not known"),
        pytest.param(OPEN.with_spec(clients=TOKENS), ClientsWorld(), id="an issuer that is not offered"),
    ],
)
def test_an_open_session_refuses_all_requests_once_the_platform_requires_authentication(
    desired: SessionBuilder, clients: ClientsWorld
) -> None:
    made = settled(OPEN)
    made.settings, made.clients = OperatorSettings(clients=ALWAYS), clients
    made.add(desired.build())
    made.run(10)
    assert accepts(made)
    assert authenticated(made) == ("False", "AuthenticationRequired")
    assert made.condition("traffic", "Ready")[0] == "False"
    made.add(PROTECTED.build())
    made.clients = ClientsWorld({"shop": KEY})
    made.run(5)
    assert (accepts(made, KEY), made.condition("traffic", "Ready")) == (True, ("True", "Serving"))


def test_a_session_with_clients_serves_on_where_authentication_is_required() -> None:
    """Also while its Secret cannot be read, because its frontends have the keys."""
    made = settled(settings=ALWAYS)
    made.clients = UNREADABLE
    made.run(10)
    assert (accepts(made, KEY), made.condition("traffic", "Ready")) == (True, ("True", "Serving"))


def test_a_session_whose_keys_are_not_known_yet_does_not_start() -> None:
    made = settled(
        OPEN.with_spec(clients=TOKENS), ClientsWorld(), OFFERED.model_copy(update={"required": Required.ALWAYS})
    )
    assert made.engine.applied == {}
    assert authenticated(made) == ("False", "IssuerUnavailable")
    assert "does not start before" in message(made)
