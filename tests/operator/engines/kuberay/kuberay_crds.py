"""KubeRay's own CustomResourceDefinitions, of the release that Partita is tested with."""

import os
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.operator.kubectl import Kubectl, foreign_definitions

VERSION = "v1.7.0"
KINDS = ("rayclusters", "rayservices")
DIRECTORY_VARIABLE = "PARTITA_KUBERAY_CRDS"
_URL = f"https://raw.githubusercontent.com/ray-project/kuberay/{VERSION}/ray-operator/config/crd/bases"
_BESIDE = Path("shared/reference/kuberay-crds")
_ROOT = Path(__file__).resolve().parents[4]
_TIMEOUT_SECONDS = 5.0


@cache
def kuberay_crd(kind: str) -> dict[str, Any]:
    """A definition from the directory $PARTITA_KUBERAY_CRDS, from one beside the repository, or from the release.

    Skips the test if none is available.
    """
    name = f"ray.io_{kind}.yaml"
    named = os.environ.get(DIRECTORY_VARIABLE)
    places = [Path(named)] if named else [parent / _BESIDE for parent in (_ROOT, *_ROOT.parents)]
    text = next((path.read_text() for place in places if (path := place / name).is_file()), None)
    if text is None:
        try:
            with urllib.request.urlopen(f"{_URL}/{name}", timeout=_TIMEOUT_SECONDS) as answer:
                text = answer.read().decode()
        except (OSError, HTTPException) as error:
            pytest.skip(f"no KubeRay {VERSION} definitions: {error}; put them into ${DIRECTORY_VARIABLE}")
    found: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


@contextmanager
def kuberay_definitions(kubectl: Kubectl, *kinds: str, other: Sequence[dict[str, Any]] = ()) -> Iterator[None]:
    """KubeRay's definitions in a cluster, and `other` ones. Skips the test if they are not available."""
    with foreign_definitions(kubectl, [*(kuberay_crd(kind) for kind in kinds), *other]):
        yield


@cache
def _strict_schema(kind: str) -> dict[str, Any]:
    (version,) = [v for v in kuberay_crd(kind)["spec"]["versions"] if v["name"] == "v1"]
    schema = _refusing_unknown_fields(version["schema"]["openAPIV3Schema"])
    assert isinstance(schema, dict)
    return schema


def complaints(kind: str, document: dict[str, Any]) -> list[str]:
    """Errors of a document by the schema of its kind, including unknown fields."""
    # jsonschema does not know names of formats such as int32.
    found = jsonschema.Draft4Validator(_strict_schema(kind)).iter_errors(document)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


def _refusing_unknown_fields(schema: Any) -> Any:
    """The schema as it would be without pruning."""
    if isinstance(schema, list):
        return [_refusing_unknown_fields(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _refusing_unknown_fields(value) for key, value in schema.items()}
    fields = schema.get("properties")
    is_object = isinstance(fields, dict) and schema.get("type") == "object"
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
        strict["additionalProperties"] = False
    return strict
