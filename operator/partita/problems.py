"""Validates a session's manifest: all that is wrong with it, with the paths that the API server uses."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from partita.errors import InvalidSessionError, Problem
from partita_api.inferencesession import InferenceSession
from partita_api.manifests import broken_fields
from partita_api.meta import MAX_SESSION_NAME, is_session_name
from partita_planner.session.session_graph import session_problems

_KEY: Final = "[key]"
"""How pydantic marks that the key of a map is wrong, not its value."""


def validated(manifest: Mapping[str, Any]) -> InferenceSession:
    """The session. Raises InvalidSessionError with all problems.

    As in the API server, rules between fields are checked when every field by itself is right.
    """
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    problems = list(_name_problems(name))
    try:
        session = InferenceSession.model_validate(manifest)
    except ValidationError as error:
        problems += [Problem(field_path(place), message) for place, message in broken_fields(error)]
        raise InvalidSessionError(str(name), problems) from error
    problems += [Problem("spec", message) for message in session_problems(session.spec)]
    if problems:
        raise InvalidSessionError(str(name), problems)
    return session


def field_path(place: tuple[str | int, ...]) -> str:
    """The path of a field as the API server writes it.

    >>> field_path(("spec", "modules", 0, "input", "shape", 1))
    'spec.modules[0].input.shape[1]'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place if part != _KEY)
    return "".join(parts).removeprefix(".")


def _name_problems(name: object) -> Iterator[Problem]:
    if isinstance(name, str) and not is_session_name(name):
        yield Problem(
            "metadata.name",
            f"{name!r} is no name of a session: use at most {MAX_SESSION_NAME} lower-case letters, digits and dashes",
        )
