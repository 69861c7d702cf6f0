"""The API server for the tests of the CRDs."""

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml
from tests.crds.documents import Json
from tests.operator.kubectl import Kubectl, cluster_with_crds
from tests.patience import PATIENCE_SECONDS

from partita_api.crd_schema import KINDS

cluster = cluster_with_crds

PLURALS = {kind.name: f"namespaces/default/{kind.plural}" for kind in KINDS} | {"GPUPool": "gpupools"}
DRY_RUN = {"dryRun": "All"}
_TYPE = '"object": '
"""What older API servers put before the message of a rule."""


@dataclass(frozen=True)
class ApiServer:
    """The API server without kubectl, which takes longer to start than a hundred of these requests."""

    http: httpx.Client

    def complaints(self, document: Json) -> list[str]:
        """What it says against the creation of an object, as `field: message`; nothing if it would take it."""
        return _complaints(self.http.post(_path(document), params=DRY_RUN, json=document))

    def store(self, document: Json) -> None:
        """Create an object."""
        assert _complaints(self.http.post(_path(document), json=document)) == []

    def complaints_of_change(self, document: Json, path: str, value: Any, *, subresource: str = "") -> list[str]:
        """What it says against another value at a path such as `spec.count` of an object that it has."""
        *parents, last = path.split(".")
        patch = {last: value}
        for name in reversed(parents):
            patch = {name: patch}
        return self._complaints_of_patch(document, "merge-patch", patch, subresource)

    def complaints_of_spec(self, document: Json) -> list[str]:
        """What it says against the spec in place of the one that it has."""
        return self._complaints_of_patch(
            document, "json-patch", [{"op": "replace", "path": "/spec", "value": document["spec"]}]
        )

    def delete(self, document: Json) -> None:
        """Delete an object."""
        self.http.delete(f"{_path(document)}/{document['metadata']['name']}").raise_for_status()

    def _complaints_of_patch(self, document: Json, type: str, patch: Any, subresource: str = "") -> list[str]:
        path = "/".join((_path(document), document["metadata"]["name"], *([subresource] if subresource else [])))
        headers = {"Content-Type": f"application/{type}+json"}
        return _complaints(self.http.patch(path, params=DRY_RUN, content=json.dumps(patch), headers=headers))


def _path(document: Json) -> str:
    return f"/apis/{document['apiVersion']}/{PLURALS[document['kind']]}"


def _complaints(answer: httpx.Response) -> list[str]:
    if answer.is_success:
        return []
    body = answer.json()
    causes = body.get("details", {}).get("causes")
    assert causes, body
    return [f"{cause['field']}: {cause['message'].replace(_TYPE, '', 1)}" for cause in causes]


@pytest.fixture(scope="session")
def server(cluster: Kubectl) -> Iterator[ApiServer]:
    """The API server with Partita's CRDs."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    there, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"}
    context = ssl.create_default_context(cadata=b64decode(there["certificate-authority-data"]).decode())
    with httpx.Client(base_url=there["server"], headers=headers, verify=context, timeout=PATIENCE_SECONDS) as http:
        yield ApiServer(http)
