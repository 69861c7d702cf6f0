"""A session with pods of its own, and what the operator writes for it."""

import json

from tests.operator.kubectl import Json, Kubectl, eventually, reason, session

from partita_operator.ports import HTTP_DIRECT, FrontendPort

SELECTOR = {"ray.io/cluster": "partita-one", "ray.io/serve": "true"}
FRONTEND = FrontendPort(HTTP_DIRECT, "10.9.8.7", 31000, "frontends-a", "uid-a", "node-a")
TRAFFIC = session("traffic", frontend={"httpPort": 0})


def serves(namespace: Kubectl, manifest: Json) -> Json:
    return {**manifest, "spec": {**manifest["spec"], "pools": [namespace.namespace]}}


async def exposed(namespace: Kubectl, want: tuple[str, str]) -> Json:
    found = await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s, "Exposed") == want)
    assert found is not None
    return found


def owned_slices(namespace: Kubectl) -> list[Json]:
    return namespace.list("endpointslices", "-l", "endpointslice.kubernetes.io/managed-by=partita.dev")


def versions(namespace: Kubectl, *kinds: str) -> dict[str, str]:
    """Resource versions of what the operator writes: sessions, plans, Services, EndpointSlices and further kinds."""
    named = ",".join(("services", "inferencesessions", "pipelineplans", *kinds))
    found = [*json.loads(namespace("get", named, "-o", "json"))["items"], *owned_slices(namespace)]
    return {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in found}
