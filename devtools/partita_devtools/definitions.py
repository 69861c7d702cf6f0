"""Partita's CustomResourceDefinitions in the API server of a development environment."""

import asyncio
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from partita_api.crd_schema import KINDS, crd
from partita_devtools.errors import DevError
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import DefinitionResource
from partita_operator.kube.retries import ApiServerUnavailableError, retried

FIELD_MANAGER: Final = "partita-devtools"
_ESTABLISHED_TIMEOUT_S: Final = 30.0


def install_definitions(kubeconfig: Path | None) -> None:
    """Create or update the definitions, and wait until the API server serves them.

    `kubeconfig` None means $KUBECONFIG or ~/.kube/config. Raises DevError.
    """
    asyncio.run(_install(kubeconfig))


async def apply_definitions(client: KubernetesClient, kubeconfig: Path | None = None) -> None:
    """The same with a client that is open; `kubeconfig` is named in the error."""
    for kind in KINDS:
        await _put_definition(client, crd(kind))
    deadline = time.monotonic() + _ESTABLISHED_TIMEOUT_S
    for name in (crd(kind)["metadata"]["name"] for kind in KINDS):
        while not _established(await retried(partial(client.get, DefinitionResource, name))):
            if time.monotonic() > deadline:
                cluster = [] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)]
                command = shlex.join(["kubectl", *cluster, "describe", "crd", name])
                raise DevError(f"the API server does not serve the CRD {name}; to see why: {command}")
            await asyncio.sleep(0.1)


async def _install(kubeconfig: Path | None) -> None:
    try:
        async with KubernetesClient(await load_config(kubeconfig), FIELD_MANAGER) as client:
            await apply_definitions(client, kubeconfig)
    except (NoClusterError, ApiServerUnavailableError) as error:
        raise DevError(f"the CustomResourceDefinitions cannot be installed: {error}") from error
    except ApiError as error:
        raise DevError(f"the API server refuses the CustomResourceDefinitions: {error.message}") from error


async def _put_definition(client: KubernetesClient, document: dict[str, Any]) -> None:
    """Create or replace, whoever owns the fields."""
    try:
        found = await retried(partial(client.get, DefinitionResource, document["metadata"]["name"]))
    except ApiError as error:
        if not is_missing(error):
            raise
        await retried(partial(client.create, DefinitionResource, document))
        return
    current = {**document["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
    await retried(partial(client.replace, DefinitionResource, {**document, "metadata": current}))


def _established(definition: Document) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
