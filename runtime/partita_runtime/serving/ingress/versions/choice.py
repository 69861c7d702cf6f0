"""Which version answers a request: by its path, by a header, or by shares. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from partita_api.session.versions import OWN_VERSION
from partita_runtime.serving.deploy.version_routes import FORWARDED, VersionRoute
from partita_runtime.serving.ingress.http_routes import INFERENCE, Operation

BY_PATH = frozenset(
    {Operation.INFER, Operation.MODEL, Operation.MODEL_READY, Operation.CONFIGURATION, Operation.STATISTICS}
)
"""Operations whose path may name a version."""


class ChosenVersion(NamedTuple):
    """Another version answers the request."""

    route: VersionRoute
    explicit: bool
    """Whether the client has chosen it, so that no other version may answer."""


def choice(
    routes: Sequence[VersionRoute],
    operation: Operation,
    version: str | None,
    headers: Mapping[str, str],
    drawn: float,
) -> ChosenVersion | None:
    """The version that answers a request with this `version` in its path; None for the session itself.

    `headers` are by name in lower case. `drawn` is a random number from 0 to 1, without 1. A request that has been
    forwarded already stays here.
    """
    if FORWARDED in headers or version == OWN_VERSION:
        return None
    if version is not None:
        named = next((route for route in routes if route.name == version), None)
        return ChosenVersion(named, True) if named is not None and operation in BY_PATH else None
    if operation not in INFERENCE:
        return None
    return _by_header(routes, headers) or _by_share(routes, drawn)


def _by_header(routes: Sequence[VersionRoute], headers: Mapping[str, str]) -> ChosenVersion | None:
    """The version that a header of the request chooses."""
    for route in routes:
        if route.header is not None and headers.get(route.header.name.lower()) == route.header.value:
            return ChosenVersion(route, True)
    return None


def _by_share(routes: Sequence[VersionRoute], drawn: float) -> ChosenVersion | None:
    """The shares of versions without one are those of the session itself."""
    below = 0.0
    for route in routes:
        below += route.share
        if drawn < below:
            return None if route.problem else ChosenVersion(route, False)
    return None
