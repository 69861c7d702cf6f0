"""The clients that a session's frontends accept, and the condition ClientsAuthenticated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.session.clients import Jwt
from partita_operator.reconcile.findings import Finding, condition, listed
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import SessionWorld
from partita_operator.settings.clients import ClientSettings, Required
from partita_runtime.serving.authentication.key_set import NoKeysError, signature_keys
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, TokenRules, key_digest

MIN_KEY_BYTES: Final = 16
MAX_KEY_BYTES: Final = 512
MAX_KEYS: Final = 256
"""API keys of one session; each takes 67 bytes of its frontends' configuration."""
_MAKE_KEYS: Final = "for example by `openssl rand -hex 32`"


@dataclass(frozen=True)
class ClientAccess:
    """Whose requests are answered."""

    allowed: AllowedClients | None = None
    """None for everybody's."""
    unknown: str = ""
    """Why the clients are not known now, so that frontends keep those that they accept; empty if they are known."""
    nobody: str = ""
    """Why no client is accepted; empty if one is."""
    finding: Finding | None = None
    """The condition ClientsAuthenticated; None for a session that never had it."""


@dataclass(frozen=True)
class _Credentials:
    """What one kind of credentials has."""

    message: str
    reason: Reason = Reason.CLIENTS_AUTHENTICATED
    digests: tuple[str, ...] = ()
    tokens: TokenRules | None = None
    unknown: bool = False
    """Whether it is not known which credentials are accepted."""


def client_access(world: SessionWorld) -> ClientAccess:
    """Whose requests the session's frontends answer now."""
    session, settings = world.session, world.settings.clients
    found = _as_in_spec(world)
    if settings.required is not Required.ALWAYS or _is_checked(session, found):
        return found
    if session.spec.clients is not None and session.status.current_plan is None:
        return found  # nothing starts before the clients are known
    message = f"All requests are refused. {found.unknown or authentication_required(settings)}"
    finding = _finding(False, Reason.AUTHENTICATION_REQUIRED, message)
    return ClientAccess(AllowedClients(), nobody=message, finding=finding)


def may_be_public(world: SessionWorld) -> bool:
    """Whether the session may have a public address: frontends check credentials, or the platform lets them not."""
    if world.settings.clients.required is Required.NEVER:
        return True
    return world.session.spec.clients is not None and _is_checked(world.session, client_access(world))


def lacks_clients(session: InferenceSession, settings: ClientSettings) -> bool:
    """Whether the session does not authenticate its clients, and needs that for a public address."""
    return session.spec.clients is None and settings.required is not Required.NEVER


def authentication_required(settings: ClientSettings) -> str:
    """What the platform requires of a session, and what to do."""
    which = "all sessions" if settings.required is Required.ALWAYS else "sessions with spec.expose"
    return f"The platform requires that {which} authenticate their clients (clients.required). Set spec.clients."


def _is_checked(session: InferenceSession, found: ClientAccess) -> bool:
    """Whether frontends check credentials; while it is not known which, whether they have done so before."""
    return found.allowed is not None or (session.spec.clients is not None and _was_checked(session))


def _was_checked(session: InferenceSession) -> bool:
    """Whether frontends have checked credentials so far, as the condition says."""
    before = condition(session.status.conditions, ConditionType.CLIENTS_AUTHENTICATED)
    if before is None:
        return False
    refused = (Reason.CLIENT_SECRET_MISSING, Reason.INVALID_CLIENT_KEYS)
    return before.status is not ConditionStatus.FALSE or before.reason in refused


def _as_in_spec(world: SessionWorld) -> ClientAccess:
    session, clients = world.session, world.session.spec.clients
    if clients is None:
        before = condition(session.status.conditions, ConditionType.CLIENTS_AUTHENTICATED)
        return ClientAccess(finding=_not_required() if before is not None else None)
    if problem := invalid_clients(session):
        return _unknown(session, Reason.INVALID_SPEC, problem)
    if problem := forbidden_clients(session, world.settings.clients):
        return _unknown(session, Reason.FORBIDDEN_CLIENTS, problem)
    kinds = [_api_keys(world)] if clients.api_keys is not None else []
    kinds += [_tokens(world, clients.jwt)] if clients.jwt is not None else []
    problem_of = next((kind for kind in kinds if kind.reason is not Reason.CLIENTS_AUTHENTICATED), None)
    if unknown := next((kind for kind in kinds if kind.unknown), None):
        return _unknown(session, unknown.reason, unknown.message)
    digests = tuple(digest for kind in kinds for digest in kind.digests)
    tokens = next((kind.tokens for kind in kinds if kind.tokens is not None), None)
    message = " ".join(kind.message for kind in kinds)
    if problem_of is None:
        finding = _finding(True, Reason.CLIENTS_AUTHENTICATED, message)
    else:
        stale = problem_of.reason is Reason.ISSUER_UNAVAILABLE
        finding = _finding(ConditionStatus.UNKNOWN if stale else False, problem_of.reason, message)
    if not digests and tokens is None:
        return ClientAccess(AllowedClients(), nobody=f"All requests are refused. {message}", finding=finding)
    return ClientAccess(AllowedClients(salt=session.metadata.uid, api_keys=digests, tokens=tokens), finding=finding)


def invalid_clients(session: InferenceSession) -> str:
    """What is wrong in spec.clients that its schema does not say; empty if nothing is."""
    jwt = session.spec.clients.jwt if session.spec.clients is not None else None
    if jwt is None or jwt.jwks is None:
        return ""
    try:
        signature_keys(jwt.jwks)
    except NoKeysError as error:
        return f"spec.clients.jwt.jwks cannot be used: {error}."
    return ""


def forbidden_clients(session: InferenceSession, settings: ClientSettings) -> str:
    """What of spec.clients the platform does not allow, and the setting to change; empty if it allows everything."""
    name, issuer = secret_name(session), issuer_to_read(session)
    if name is not None and name not in settings.allowed_secrets:
        allowed = listed(list(settings.allowed_secrets))
        return (
            f"The platform does not allow Secret {name} in spec.clients.apiKeys.secretName: clients.allowedSecrets of "
            f"the chart {f'has only {allowed}' if allowed else 'is empty'}."
        )
    if issuer is not None and settings.issuer_for(issuer, session.namespace) is None:
        return (
            f"The platform does not offer issuer {issuer} of spec.clients.jwt to namespace {session.namespace}. Set "
            "its public keys in spec.clients.jwt.jwks, or have it added to clients.issuers of the chart."
        )
    return ""


def secret_name(session: InferenceSession) -> str | None:
    """The Secret with the session's API keys."""
    clients = session.spec.clients
    return clients.api_keys.secret_name if clients is not None and clients.api_keys is not None else None


def issuer_to_read(session: InferenceSession) -> str | None:
    """The issuer of the clients' tokens whose keys the operator reads; None if the session has the keys."""
    jwt = session.spec.clients.jwt if session.spec.clients is not None else None
    return jwt.issuer if jwt is not None and jwt.jwks is None else None


def _api_keys(world: SessionWorld) -> _Credentials:
    session, found, name = world.session, world.clients, secret_name(world.session)
    if found.problem:
        return _Credentials(found.problem, Reason.CLIENT_SECRET_UNREADABLE, unknown=True)
    if found.keys is None:
        return _Credentials(
            f"Secret {name} does not exist. Create it, with a key for each client.", Reason.CLIENT_SECRET_MISSING
        )
    unusable = dict(_unusable(found.keys))
    usable = {key.strip() for client, key in found.keys.items() if client not in unusable}
    digests = tuple(sorted(key_digest(session.metadata.uid, key) for key in usable))
    problems = listed([f"{client} {why}" for client, why in unusable.items()], "; ")
    if not digests:
        why = f" These cannot be used: {problems}." if problems else ""
        message = f"Secret {name} has no API key.{why} Add a key for each client, made {_MAKE_KEYS}."
        return _Credentials(message, Reason.INVALID_CLIENT_KEYS)
    count = len(found.keys) - len(unusable)
    message = f"{count} {'client has an API key' if count == 1 else 'clients have API keys'} in Secret {name}."
    if problems:
        message += f" These keys are not accepted: {problems}. Replace them, {_MAKE_KEYS}."
        return _Credentials(message, Reason.INVALID_CLIENT_KEYS, digests)
    return _Credentials(message, digests=digests)


def _tokens(world: SessionWorld, jwt: Jwt) -> _Credentials:
    if jwt.jwks is not None:
        keys, problem = signature_keys(jwt.jwks), ""
    else:
        keys, problem = world.clients.issuer.keys, world.clients.issuer.problem
    message = f"Tokens of {jwt.issuer} are accepted."
    if not keys:
        message = f"The public keys of issuer {jwt.issuer} are not known. {problem}"
        return _Credentials(message, Reason.ISSUER_UNAVAILABLE, unknown=True)
    rules = TokenRules(issuer=jwt.issuer, audiences=jwt.audiences, claims=jwt.claims, keys=keys)
    if problem:
        message += f" Its public keys cannot be read now, and the last ones stay valid. {problem}"
        return _Credentials(message, Reason.ISSUER_UNAVAILABLE, tokens=rules)
    return _Credentials(message, tokens=rules)


def _unusable(keys: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """The clients whose keys are not accepted, and why."""
    for number, (client, value) in enumerate(sorted(keys.items())):
        key = value.strip()
        if len(key) < MIN_KEY_BYTES:
            yield client, f"has fewer than {MIN_KEY_BYTES} bytes"
        elif len(key) > MAX_KEY_BYTES:
            yield client, f"has more than {MAX_KEY_BYTES} bytes"
        elif not all(0x21 <= byte <= 0x7E for byte in key):
            yield client, "has other than visible ASCII characters"
        elif number >= MAX_KEYS:
            yield client, f"is beyond the {MAX_KEYS} clients that a session may have"


def _not_required() -> Finding:
    message = "The session has no spec.clients: everybody's requests are answered."
    return _finding(False, Reason.EVERYBODY_ACCEPTED, message)


def _unknown(session: InferenceSession, reason: Reason, problem: str) -> ClientAccess:
    """It is not known which clients to accept: frontends stay as they are, and the status says what that is."""
    if _was_checked(session):
        message = f"{problem} Frontends keep the clients that they accept."
        return ClientAccess(unknown=problem, finding=_finding(ConditionStatus.UNKNOWN, reason, message))
    runs = session.status.current_plan is not None
    meanwhile = "Frontends answer everybody until then." if runs else "The session does not start before."
    return ClientAccess(unknown=problem, finding=_finding(False, reason, f"{problem} {meanwhile}"))


def _finding(status: ConditionStatus | bool, reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.CLIENTS_AUTHENTICATED, status, reason, message)
