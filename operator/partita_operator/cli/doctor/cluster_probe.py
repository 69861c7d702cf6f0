"""Reads the facts on a cluster. Every request has a time limit, and a part that cannot be read is Unknown."""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from partita_api.crd_schema import KINDS, CustomResource, crd
from partita_api.meta import API_VERSION, GROUP
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.cli.doctor.cluster_facts import (
    AccessFacts,
    ClusterFacts,
    DefinitionFacts,
    KubeRayFacts,
    LeaseFacts,
    MetricsFacts,
    NoCluster,
    NodeFacts,
    ObjectFacts,
    OperatorFacts,
    WebhookFacts,
)
from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.schema_comparison import same_schema
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import Connection, NoClusterError, load_config
from partita_operator.kube.errors import ApiError, KubernetesError, is_missing
from partita_operator.kube.resources import (
    DefinitionResource,
    LeaseResource,
    NodeResource,
    PoolResource,
    SessionResource,
    equal,
    resource,
)

T = TypeVar("T")

FIELD_MANAGER: Final = "kubectl-partita"
REQUEST_SECONDS: Final = 10.0
"""Time limit of one part of the facts."""
VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "GPUPool": ("get", "list", "watch", "create", "patch", "delete"),
    "InferenceSession": ("get", "list", "watch", "create", "patch", "delete"),
    "PipelinePlan": ("get", "list", "watch", "patch"),
}
"""The verbs that users of each kind need."""
ACCELERATORS: Final = re.compile(
    r"(nvidia\.com/(gpu|mig-).*|amd\.com/gpu|gpu\.intel\.com/.*|google\.com/tpu|habana\.ai/gaudi|aws\.amazon\.com/neuron.*)"
)
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
PARTITA_LABELS: Final = {"app.kubernetes.io/name": "partita", "app.kubernetes.io/component": "operator"}

AccessReviewResource: Final = resource(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
DeploymentResource: Final = resource("apps/v1", "Deployment", "deployments")
EndpointsResource: Final = resource("v1", "Endpoints", "endpoints")
MonitorResource: Final = resource("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
ServiceResource: Final = resource("v1", "Service", "services")
WebhookResource: Final = resource(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


def cluster_facts(place: ClusterPlace) -> ClusterFacts | NoCluster:
    """The facts on the cluster at `place`; NoCluster if there is none, or if it does not answer."""
    return asyncio.run(_cluster(place))


async def _cluster(place: ClusterPlace) -> ClusterFacts | NoCluster:
    named = place.kubeconfig is not None or place.context is not None
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            connection = await load_config(place.kubeconfig, place.context)
    except NoClusterError as error:
        return NoCluster(str(error), is_expected=named)
    except TimeoutError:
        return NoCluster(f"The credentials of the kubeconfig take longer than {REQUEST_SECONDS:.0f} s.", True)
    try:
        async with KubernetesClient(connection, FIELD_MANAGER) as client:
            return await _answers(client, connection, place)
    except NoClusterError as error:
        return NoCluster(str(error), is_expected=True)


async def _answers(client: KubernetesClient, connection: Connection, place: ClusterPlace) -> ClusterFacts | NoCluster:
    namespace = place.namespace or connection.namespace or "default"
    probe = _ClusterProbe(client, namespace)
    version = await _observed(probe.version())
    if isinstance(version, Unknown):
        return NoCluster(f"The API server at {connection.server} cannot be used: {version.reason}.", True)
    async with asyncio.TaskGroup() as parts:
        definitions = parts.create_task(_observed(probe.definitions()))
        access = parts.create_task(_observed(probe.access()))
        operators = parts.create_task(_observed(probe.operators()))
        objects = parts.create_task(_observed(probe.objects()))
        webhooks = parts.create_task(_observed(probe.webhooks()))
        kuberay = parts.create_task(_observed(probe.kuberay()))
        nodes = parts.create_task(_observed(probe.nodes()))
        metrics = parts.create_task(_observed(probe.metrics()))
    return ClusterFacts(
        server=connection.server,
        flags=place.flags(namespace),
        namespace=namespace,
        version=version,
        definitions=definitions.result(),
        access=access.result(),
        operators=operators.result(),
        objects=objects.result(),
        webhooks=webhooks.result(),
        kuberay=kuberay.result(),
        nodes=nodes.result(),
        metrics=metrics.result(),
    )


async def _observed(fact: Awaitable[T]) -> T | Unknown:
    """The fact, or why it cannot be read."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            return await fact
    except TimeoutError:
        return Unknown(f"the answer takes longer than {REQUEST_SECONDS:.0f} s")
    except (KubernetesError, NoClusterError) as error:
        return Unknown(str(error).rstrip("."))
    except (KeyError, TypeError, ValueError) as error:
        return Unknown(f"the answer is not the expected one: {error!r}")


class _ClusterProbe:
    """The requests for each part of the facts. They raise KubernetesError and NoClusterError."""

    def __init__(self, client: KubernetesClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def version(self) -> tuple[int, int]:
        answer = await self._client.document("/version")
        major, minor = (re.match(r"\d+", str(answer.get(part, ""))) for part in ("major", "minor"))
        return (int(major[0]), int(minor[0])) if major and minor else (0, 0)

    async def definitions(self) -> tuple[DefinitionFacts, ...]:
        served = await self._kinds(API_VERSION)
        return tuple(await asyncio.gather(*(self._definition(kind, served) for kind in KINDS)))

    async def access(self) -> tuple[AccessFacts, ...]:
        return tuple(await asyncio.gather(*(self._access(kind) for kind in KINDS)))

    async def operators(self) -> tuple[OperatorFacts, ...]:
        found = await self._client.list(DeploymentResource, labels=equal(PARTITA_LABELS))
        return tuple(await asyncio.gather(*map(self._operator, found)))

    async def objects(self) -> tuple[ObjectFacts, ...]:
        if not {"gpupools", "inferencesessions"} <= await self._kinds(API_VERSION):
            return ()
        pools, sessions = await asyncio.gather(self._client.list(PoolResource), self._client.list(SessionResource))
        return tuple(_object("GPUPool", raw) for raw in pools) + tuple(
            _object("InferenceSession", raw) for raw in sessions
        )

    async def webhooks(self) -> tuple[WebhookFacts, ...]:
        configurations = await self._client.list(WebhookResource)
        ours = [
            (raw["metadata"]["name"], hook)
            for raw in configurations
            for hook in raw.get("webhooks") or ()
            if any(GROUP in (rule.get("apiGroups") or ()) for rule in hook.get("rules") or ())
        ]
        return tuple(await asyncio.gather(*(self._webhook(name, hook) for name, hook in ours)))

    async def kuberay(self) -> KubeRayFacts:
        kinds = await self._kinds("ray.io/v1")
        version = await _observed(self._kuberay_version())
        sessions = await _observed(self._kuberay_sessions())
        return KubeRayFacts(tuple(sorted(kinds & {"rayclusters", "rayservices"})), version, sessions)

    async def nodes(self) -> tuple[NodeFacts, ...]:
        found = (_node(raw) for raw in await self._client.list(NodeResource))
        return tuple(node for node in found if node.accelerators)

    async def metrics(self) -> MetricsFacts:
        services = await self._client.list(ServiceResource, labels=equal(PARTITA_LABELS))
        has_monitors = "servicemonitors" in await self._kinds("monitoring.coreos.com/v1")
        monitors: tuple[str, ...] | Unknown = ()
        if has_monitors:
            listed = await _observed(self._client.list(MonitorResource, labels=equal(PARTITA_LABELS)))
            monitors = listed if isinstance(listed, Unknown) else _keys(listed)
        with_metrics = [
            raw for raw in services if any(port.get("name") == "metrics" for port in raw["spec"].get("ports") or ())
        ]
        return MetricsFacts(_keys(with_metrics), has_monitors, monitors)

    async def _kinds(self, api_version: str) -> frozenset[str]:
        """The plural names of the kinds that the server serves of a group; none if it does not know the group."""
        try:
            found = await self._client.document(f"/apis/{api_version}")
        except ApiError as error:
            if is_missing(error):
                return frozenset()
            raise
        return frozenset(entry["name"] for entry in found.get("resources") or ())

    async def _definition(self, kind: CustomResource, served: frozenset[str]) -> DefinitionFacts:
        if kind.plural not in served:
            return DefinitionFacts(kind.name, False, False)
        expected = crd(kind)
        found = await _observed(self._client.get(DefinitionResource, expected["metadata"]["name"]))
        current = found if isinstance(found, Unknown) else same_schema(found, expected)
        return DefinitionFacts(kind.name, True, current)

    async def _access(self, kind: CustomResource) -> AccessFacts:
        verbs = VERBS[kind.name]
        allowed = await asyncio.gather(*(self._may(kind, verb) for verb in verbs))
        return AccessFacts(kind.name, tuple(verb for verb, may in zip(verbs, allowed, strict=True) if not may))

    async def _may(self, kind: CustomResource, verb: str) -> bool:
        attributes = {"group": GROUP, "resource": kind.plural, "verb": verb}
        if kind.scope == "Namespaced":
            attributes["namespace"] = self._namespace
        review = await self._client.create(AccessReviewResource, {"spec": {"resourceAttributes": attributes}})
        return bool((review.get("status") or {}).get("allowed"))

    async def _operator(self, raw: Document) -> OperatorFacts:
        metadata, status = raw["metadata"], raw.get("status") or {}
        return OperatorFacts(
            namespace=metadata["namespace"],
            name=metadata["name"],
            version=(metadata.get("labels") or {}).get("app.kubernetes.io/version", ""),
            replicas=int(raw["spec"].get("replicas", 1)),
            ready=int(status.get("readyReplicas") or 0),
            lease=await _observed(self._lease(metadata["namespace"], metadata["name"])),
        )

    async def _lease(self, namespace: str, name: str) -> LeaseFacts | None:
        try:
            spec = (await self._client.get(LeaseResource, name, namespace)).get("spec") or {}
        except ApiError as error:
            if is_missing(error):
                return None
            raise
        renewed = spec.get("renewTime")
        age = (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")
        return LeaseFacts(spec.get("holderIdentity") or "", age, int(spec.get("leaseDurationSeconds") or 0))

    async def _webhook(self, name: str, hook: Mapping[str, Any]) -> WebhookFacts:
        client = hook.get("clientConfig") or {}
        service = client.get("service")
        if not service:
            return WebhookFacts(name, bool(client.get("caBundle")), "", 0)
        endpoints = await _observed(self._endpoints(service["name"], service["namespace"]))
        return WebhookFacts(name, bool(client.get("caBundle")), f"{service['namespace']}/{service['name']}", endpoints)

    async def _endpoints(self, name: str, namespace: str) -> int:
        """How many ready addresses the Service has."""
        try:
            found = await self._client.get(EndpointsResource, name, namespace)
        except ApiError as error:
            if is_missing(error):
                return 0
            raise
        return sum(len(subset.get("addresses") or ()) for subset in found.get("subsets") or ())

    async def _kuberay_version(self) -> str | None:
        labels = equal({"app.kubernetes.io/name": "kuberay-operator"})
        for deployment in await self._client.list(DeploymentResource, labels=labels):
            for container in deployment["spec"]["template"]["spec"]["containers"]:
                if tag := re.search(r":v?(\d+\.\d+(\.\d+)?)", container.get("image", "")):
                    return tag[1]
            return ""
        return None

    async def _kuberay_sessions(self) -> tuple[str, ...]:
        if "inferencesessions" not in await self._kinds(API_VERSION):
            return ()
        sessions = await self._client.list(SessionResource)
        return _keys(raw for raw in sessions if _engine(raw) == "KubeRay")


def _engine(session: Mapping[str, Any]) -> str:
    """The engine of a session: the operator's default is only in its status."""
    engine = (session.get("spec") or {}).get("engine") or {}
    named = engine.get("type") if isinstance(engine, Mapping) else None
    return str(named or (session.get("status") or {}).get("engine", ""))


def _keys(objects: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}" for raw in objects)


def _object(kind: str, raw: Mapping[str, Any]) -> ObjectFacts:
    metadata, status = raw["metadata"], raw.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready"), {})
    namespace = metadata.get("namespace")
    return ObjectFacts(
        kind=kind,
        key=f"{namespace}/{metadata['name']}" if namespace else metadata["name"],
        is_processed=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
        ready=str(ready.get("status", "Unknown")),
        reason=str(ready.get("message", "")),
    )


def _node(raw: Mapping[str, Any]) -> NodeFacts:
    metadata, status = raw["metadata"], raw.get("status") or {}
    allocatable = status.get("allocatable") or {}
    return NodeFacts(
        name=metadata["name"],
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        product=(metadata.get("labels") or {}).get(PRODUCT_LABEL, ""),
        accelerators={
            name: int(amount)
            for name, amount in sorted(allocatable.items())
            if ACCELERATORS.fullmatch(name) and str(amount).isdigit() and int(amount) > 0
        },
    )
