"""Reads Partita's resources from YAML, with errors that say which document and field is wrong."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import API_VERSION
from partita_api.pipelineplan import PipelinePlan

Resource = GPUPool | InferenceSession | PipelinePlan
MODELS: Mapping[str, type[Resource]] = {
    "GPUPool": GPUPool,
    "InferenceSession": InferenceSession,
    "PipelinePlan": PipelinePlan,
}


class NotYamlError(ValueError):
    """A text that is not YAML, or has a value that YAML cannot express, such as the date 2026-99-99."""


class ManifestError(ValueError):
    """A manifest that cannot be used; the message names the document, the field and what is wrong with it."""


@dataclass(frozen=True)
class Manifests:
    """What some YAML documents hold, in their order; resources that are not Partita's are left out."""

    pools: tuple[GPUPool, ...] = ()
    sessions: tuple[InferenceSession, ...] = ()
    plans: tuple[PipelinePlan, ...] = ()
    others: tuple[str, ...] = ()
    """Kinds of the documents left out."""

    def __add__(self, other: "Manifests") -> "Manifests":
        return Manifests(
            self.pools + other.pools,
            self.sessions + other.sessions,
            self.plans + other.plans,
            self.others + other.others,
        )


def parse_yaml(text: str) -> Any:
    """The document in a text; None if the text is empty. Raises NotYamlError."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error) from error


def parse_yaml_documents(text: str) -> list[Any]:
    """The documents in a text, without empty ones. Raises NotYamlError."""
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error) from error


def parse_manifests(text: str, source: str) -> Manifests:
    """The resources in a YAML text; `source` names it in errors. Raises ManifestError."""
    try:
        documents = parse_yaml_documents(text)
    except NotYamlError as error:
        raise ManifestError(f"{source} is not YAML: {error}") from error
    return _sorted_by_kind(parse_resource(d, f"{source} (document {i + 1})") for i, d in enumerate(documents))


def parse_resource(document: Any, source: str) -> Resource | str:
    """One resource, or the kind of a document that is not Partita's. Raises ManifestError."""
    if not isinstance(document, Mapping) or "kind" not in document:
        raise ManifestError(f"{source} is not a Kubernetes object: it has no kind")
    kind = str(document["kind"])
    if document.get("apiVersion") != API_VERSION:
        if kind in MODELS:
            raise ManifestError(f"{source}: {kind} has apiVersion {document.get('apiVersion')!r}; write {API_VERSION}")
        return kind
    if kind not in MODELS:
        raise ManifestError(f"{source}: {API_VERSION} has no kind {kind!r}; it has {', '.join(MODELS)}")
    try:
        return MODELS[kind].model_validate(document)
    except ValidationError as error:
        metadata = document.get("metadata")
        name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
        raise ManifestError(f"{source}: {kind} {name!r} is wrong:\n{explain(error)}") from error


def explain(error: ValidationError) -> str:
    """A validation error as lines of `field: what is wrong`."""
    return "\n".join(
        f"  {'.'.join(str(part) for part in place) or '(object)'}: {message}" for place, message in broken_fields(error)
    )


def broken_fields(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The wrong fields in a validation error, as the names and indices that lead to them, and what is wrong."""
    problems = error.errors(include_url=False)
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        place = problem["loc"]
        # Of a list whose items are wrong, pydantic also says that it has too few items.
        if problem["type"] == "too_short" and any(p != place and p[: len(place)] == place for p in places):
            continue
        yield place, problem["msg"].removeprefix("Value error, ")


def _sorted_by_kind(resources: Iterable[Resource | str]) -> Manifests:
    found = list(resources)
    return Manifests(
        pools=tuple(r for r in found if isinstance(r, GPUPool)),
        sessions=tuple(r for r in found if isinstance(r, InferenceSession)),
        plans=tuple(r for r in found if isinstance(r, PipelinePlan)),
        others=tuple(r for r in found if isinstance(r, str)),
    )


def _not_yaml(error: Exception) -> NotYamlError:
    """The parser raises ValueError for dates and huge numbers, and RecursionError for deep nesting."""
    return NotYamlError("the nesting is too deep" if isinstance(error, RecursionError) else str(error))
