"""A session's manifest as JSON data: from Python's values, from YAML, and from a model of the API."""

from collections.abc import Mapping, Sequence, Set
from pathlib import PurePath
from typing import Any, Final

import numpy as np
from pydantic import BaseModel

from partita.errors import PartitaError
from partita.problems import validated
from partita.tensor import Tensor
from partita_api.inferencesession import InferenceSession
from partita_api.manifests import NotYamlError, parse_yaml_documents

_AUTHORED: Final = {"name", "namespace", "labels", "annotations"}
"""What of the metadata an author writes. The rest is the API server's."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def manifest_of(session: InferenceSession) -> dict[str, Any]:
    """The fields that are set, without what the API server adds."""
    found = session.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        include={"api_version": True, "kind": True, "metadata": _AUTHORED, "spec": True},
    )
    found["metadata"].get("annotations", {}).pop(_LAST_APPLIED, None)
    return found


def session_in(text: str, name: str | None) -> InferenceSession:
    """The session in a YAML text; of several, the one with this name. Raises PartitaError and InvalidSessionError."""
    try:
        documents = parse_yaml_documents(text)
    except NotYamlError as error:
        raise PartitaError(f"the text is not YAML: {error}") from error
    sessions = [d for d in documents if isinstance(d, Mapping) and d.get("kind") == "InferenceSession"]
    chosen = [d for d in sessions if name is None or _name(d) == name]
    if len(chosen) != 1:
        there = ", ".join(map(_name, sessions)) or "none"
        raise PartitaError(f"give the name of one InferenceSession in the text; it has: {there}")
    return validated(chosen[0])


def plain(value: Any) -> Any:
    """A value as JSON data. It shares nothing that can change with the original."""
    match value:
        case BaseModel():
            return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        case Tensor():
            return value.manifest()
        case np.ndarray() | np.generic():
            return value.tolist()
        case str() | PurePath():
            return str(value)
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case Sequence() | Set():
            return [plain(inner) for inner in value]
    return value


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, Mapping) else "?"
